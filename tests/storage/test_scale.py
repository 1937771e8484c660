"""A table of 10,000 files: how long it takes to open and list, and what that leaves in memory."""

import shutil
import tempfile
import unittest
from pathlib import Path

import tables

FILES, AT_ONCE = 10_000, 250
COLUMNS = [1, 2, 3, 7, 8, 9, 10, 11, 12, 13]


class Scale(unittest.TestCase):
    def test_ten_thousand_files(self) -> None:
        root = Path(tempfile.mkdtemp(prefix="scale-"))
        self.addCleanup(shutil.rmtree, root)
        location = f"file://{root}/log"
        committer = tables.Committer()
        self.addCleanup(committer.close)
        committer.do("create", location=location, schema=tables.SCHEMA)

        def file(number: int) -> dict:
            columns = [{"field_id": field, "size_bytes": 5000, "values": 1000, "nulls": 3} for field in COLUMNS]
            for column in columns[:2]:
                column |= {"lower": [0] * 8, "upper": [1] * 8}
            return {"uri": f"{location}/data/sealed/{number * 1000 + 1}-{number * 1000 + 1001}-0123abcd.parquet",
                    "start": number * 1000 + 1, "end": number * 1000 + 1001, "rows": 1000, "size_bytes": 50_000,
                    "ts_us": [number, number], "split_offsets": [4], "columns": columns}

        for first in range(0, FILES, AT_ONCE):
            committer.do("append", files=[file(number) for number in range(first, first + AT_ONCE)])
        fresh = tables.Committer()
        self.addCleanup(fresh.close)
        times = []
        for _ in range(15):
            measured = fresh.do("measure", location=location)
            self.assertEqual(FILES, measured["files"])
            times.append(measured)
        print("  ".join(f"{each['elapsed_ms']:.0f} ms, peak {each['after_kib'] >> 10} MiB" for each in times))
        # Once every thread of the runtime has had its turn, memory does not grow from one opening to the next.
        self.assertLess(times[-1]["after_kib"], times[7]["after_kib"] + 8192)
        self.assertLess(times[-1]["after_kib"], 100 << 10)
        manifests = list((root / "log/metadata").glob("*-m*.avro"))
        print(f"{len(manifests)} manifests written, {sum(path.stat().st_size for path in manifests) >> 10} KiB")
