"""Tables that the Python package wrote: listed, and carried on by our committer."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import litelink
import pyarrow as pa
import pyarrow.parquet as pq

import readers
import tables

SCHEMA = pa.schema([pa.field("price", pa.float64(), False), pa.field("symbol", pa.string(), True),
                    pa.field("streamcast_ts", pa.int64(), False)])


def row(number: int) -> dict:
    return {"price": number / 4, "symbol": f"s{number % 3}", "streamcast_ts": number}


class Reference(unittest.TestCase):
    def setUp(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="reference-"))
        self.addCleanup(shutil.rmtree, self.root)
        self.committer = tables.Committer()
        self.addCleanup(self.committer.close)
        self.directory = self.root / "log/published/log"
        self.location = f"file://{self.directory}"

    def write(self, rounds: int) -> None:
        """A published log of the reference: `rounds` publishes of ten rows each."""
        log = litelink.new(str(self.root), "log", schema=SCHEMA, sort_by=["symbol"])
        for turn in range(rounds):
            log.extend([row(number) for number in range(turn * 10 + 1, turn * 10 + 11)])
            while log.seal(flush=True) is not None:
                pass
            log.publish(flush=True)
        log.close()

    def found(self) -> list[dict]:
        with readers.connect() as db:
            by_file = readers.by_duckdb(db, self.committer.do("state")["metadata"].removeprefix("file://"))
            self.assertEqual(by_file, readers.by_duckdb(db, str(self.directory)))
        self.assertEqual(by_file, readers.by_pyiceberg(str(self.directory)))
        return by_file

    def test_its_files_are_listed_and_more_are_added(self) -> None:
        self.write(13)
        state = self.committer.do("open", location=self.location)
        self.assertEqual(([1, 131], 130, 130), (state["extent"], state["rows"], state["issued_through"]))
        self.assertEqual((["symbol"], None), (state["sort_by"], state["retired"]))
        told = pa.ipc.read_schema(pa.BufferReader(bytes.fromhex(state["arrow_schema"])))
        self.assertEqual(SCHEMA, told)
        files = self.committer.do("files")
        self.assertEqual([(at * 10 + 1, at * 10 + 11) for at in range(13)],
                         [(file["start"], file["end"]) for file in files])
        for file in files:
            self.assertTrue(Path(file["uri"].removeprefix("file://")).exists(), file["uri"])
            self.assertEqual([file["start"], file["end"] - 1], file["ts_us"])
        # Files of ours among its own: first merged ones in the place of some, then a new one.
        expected = [{"litelink_offset": number} | row(number) for number in range(1, 151)]
        ids = {field["name"]: field["id"] for field in self.schema()["fields"]}
        merged = self.parquet(expected[20:70], ids)
        done = self.committer.do("replace", start=21, end=71, files=[merged])
        self.assertEqual((1, 5, [1, 131]), (done["added"], done["removed"], done["extent"]))
        self.assertEqual(expected[:130], self.found())
        self.committer.do("append", files=[self.parquet(expected[130:], ids)], issued_through=150)
        self.assertEqual(expected, self.found())
        self.committer.do("expire", retention_s=0)
        self.committer.do("sweep", dry_run=False, min_age_s=0)
        self.assertEqual(expected, self.found())
        self.assertEqual(10, len(list(self.directory.glob("data/**/*.parquet"))))
        self.assertLess(len(list(self.directory.glob("metadata/*"))), 10)

    def schema(self) -> dict:
        hint = (self.directory / "metadata/version-hint.text").read_text()
        return json.loads((self.directory / f"metadata/{hint}.metadata.json").read_text())["schemas"][0]

    def parquet(self, values: list[dict], ids: dict) -> dict:
        name = tables.new_name("compacted", values[0]["litelink_offset"], values[-1]["litelink_offset"] + 1)
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fields = [pa.field("litelink_offset", pa.int64(), False), *SCHEMA]
        schema = pa.schema([field.with_metadata({"PARQUET:field_id": str(ids[field.name])}) for field in fields])
        pq.write_table(pa.Table.from_pylist(values, schema=schema), path)
        return {"uri": f"{self.location}/{name}", "start": values[0]["litelink_offset"],
                "end": values[-1]["litelink_offset"] + 1, "rows": len(values), "size_bytes": path.stat().st_size,
                "ts_us": [values[0]["streamcast_ts"], values[-1]["streamcast_ts"]], "split_offsets": [4], "columns": []}
