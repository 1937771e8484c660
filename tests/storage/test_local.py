"""Tables on a local disk, row by row by DuckDB and PyIceberg, after each kind of change."""

import shutil
import tempfile
import unittest
from pathlib import Path

import readers
import tables


class LocalTable(unittest.TestCase):
    def setUp(self) -> None:
        # A blank and a letter beyond ASCII: paths are written raw.
        self.root = Path(tempfile.mkdtemp(prefix="täble of "))
        self.addCleanup(shutil.rmtree, self.root)
        self.location = f"file://{self.root}/pub/log"
        self.committer = tables.Committer()
        self.addCleanup(self.committer.close)
        self.db = readers.connect()
        self.addCleanup(self.db.close)

    def create(self, **more) -> dict:
        return self.committer.do("create", location=self.location, schema=tables.SCHEMA, **more)

    def file(self, start: int, end: int, kind: str = "sealed") -> dict:
        name = tables.new_name(kind, start, end)
        return tables.parquet(self.root / "pub/log" / name, f"{self.location}/{name}", tables.rows(start, end))

    def check(self, start: int, end: int) -> None:
        """Every reader finds exactly these rows."""
        expected = [readers.canonical(row) for row in tables.rows(start, end)]
        metadata = self.committer.do("state")["metadata"].removeprefix("file://")
        self.assertEqual(expected, readers.by_duckdb(self.db, metadata))
        self.assertEqual(expected, readers.by_duckdb(self.db, f"{self.root}/pub/log"))
        self.assertEqual(expected, readers.by_pyiceberg(metadata))
        self.assertEqual(expected, readers.by_pyiceberg(str(self.root / "pub/log")))

    def test_an_empty_table(self) -> None:
        self.create()
        self.check(1, 1)

    def test_every_kind_of_change(self) -> None:
        self.create(sort_by=["symbol", "price"], arrow_schema="ffffffff")
        parts = [self.file(start, start + 60) for start in range(1, 600, 60)]
        self.committer.do("append", files=parts[:4], issued_through=400, writer_epoch=1)
        self.check(1, 241)
        for part in parts[4:]:
            self.committer.do("append", files=[part])
        self.check(1, 601)
        self.committer.do("append", files=parts)
        self.check(1, 601)
        self.committer.do("replace", start=61, end=481, files=[self.file(61, 301, "compacted"),
                                                               self.file(301, 481, "compacted")])
        self.check(1, 601)
        self.committer.do("set", properties={"a": "b"})
        self.check(1, 601)
        self.committer.do("truncate", floor=61)
        self.check(61, 601)
        expired = self.committer.do("expire", retention_s=0)
        self.assertGreater(expired["snapshots"], 5)
        self.assertEqual(8, len(expired["data_files"]))
        self.check(61, 601)
        self.committer.do("append", files=[self.file(601, 650)])
        swept = self.committer.do("sweep", dry_run=False, min_age_s=0)
        self.assertEqual([], swept["orphans"])
        self.check(61, 650)
        self.committer.do("truncate", floor=650)
        self.check(1, 1)

    def test_readers_that_have_a_table_open_keep_it(self) -> None:
        self.create()
        self.committer.do("append", files=[self.file(1, 50), self.file(50, 100)])
        pinned = self.committer.do("state")["metadata"].removeprefix("file://")
        expected = [readers.canonical(row) for row in tables.rows(1, 100)]
        for start in range(100, 130):
            self.committer.do("append", files=[self.file(start, start + 1)])
            self.committer.do("expire", retention_s=3600)
        self.committer.do("replace", start=1, end=130, files=[self.file(1, 130, "compacted")])
        self.committer.do("expire", retention_s=3600)
        self.committer.do("sweep", dry_run=False, min_age_s=3600)
        self.assertEqual(expected, readers.by_duckdb(self.db, pinned))
        self.assertEqual(expected, readers.by_pyiceberg(pinned))
        self.check(1, 130)

    def test_what_readers_are_told(self) -> None:
        """Statistics, numbers and properties as pyiceberg sees them."""
        import pyiceberg.table

        self.create(sort_by=["symbol"], arrow_schema="00ff")
        parts = [self.file(1, 120), self.file(120, 130)]
        self.committer.do("append", files=parts[:1], issued_through=119, writer_epoch=7)
        self.committer.do("append", files=parts[1:], issued_through=129, writer_epoch=7)
        state = self.committer.do("state")
        self.assertEqual([1, 130], state["extent"])
        table = pyiceberg.table.StaticTable.from_metadata(state["metadata"].removeprefix("file://"))
        files = sorted((task.file for task in table.scan().plan_files()), key=lambda file: file.lower_bounds[1])
        for file, part in zip(files, parts, strict=True):
            self.assertEqual(part["size_bytes"], file.file_size_in_bytes)
            self.assertEqual(part["rows"], file.record_count)
            self.assertEqual(part["split_offsets"], file.split_offsets)
            self.assertEqual(part["start"], int.from_bytes(file.lower_bounds[1], "little"))
            self.assertEqual(part["end"] - 1, int.from_bytes(file.upper_bounds[1], "little"))
            for column in part["columns"]:
                self.assertEqual(column["values"], file.value_counts[column["field_id"]])
                self.assertEqual(column["nulls"], file.null_value_counts[column["field_id"]])
                self.assertEqual(column["size_bytes"], file.column_sizes[column["field_id"]])
        self.assertEqual("129", table.properties["litelink.issued_through"])
        self.assertEqual('["symbol"]', table.properties["litelink.sort_by"])
        self.assertEqual([3], [field.source_id for field in table.sort_order().fields])
        self.assertEqual(999, table.metadata.last_partition_id)
        entries = table.inspect.entries().to_pylist()
        self.assertEqual({(0, 1), (1, 2)}, {(entry["status"], entry["sequence_number"]) for entry in entries})
        summary = table.current_snapshot().summary
        self.assertEqual(("10", "129"), (summary["added-records"], summary["total-records"]))
        # Only rows of the second file are looked for: bounds must not hide them.
        self.assertEqual(3, len(table.scan(row_filter="price >= 15.875").to_arrow()))

    def test_files_of_a_dropped_log(self) -> None:
        self.create()
        self.committer.do("append", files=[self.file(1, 20)])
        self.assertIn("litelink.retired", self.committer.ask("delete", location=self.location, dry_run=False)["error"])
        self.committer.do("retire", through=19, at="2026-11-29T19:17:55+00:00")
        self.check(1, 20)
        self.committer.do("delete", location=self.location, dry_run=False)
        self.assertFalse((self.root / "pub/log").exists())
