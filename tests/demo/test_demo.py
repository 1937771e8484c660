"""`streamcast-uring demo`, DuckDB on its table, and the official client's snapshot and live view beside it."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import websockets
from streamcast import LATEST, Stream

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "storage"))
import readers  # noqa: E402

BINARY = os.environ.get("STREAMCAST_BIN", str(TESTS.parent / "target/release/streamcast-uring"))
SECONDS = float(os.environ.get("DEMO_SECONDS", "25"))
# flush_every of the demo, and what a table may trail by besides (docs/operations.md).
FLUSH_S, SLACK_S = 10, 20
# Old enough for a row to be called a second old, and what a busy machine may add.
LIVE_S = 20


def say(text: str) -> None:
    print(f"  {text}", flush=True)


async def counted(view) -> list:
    """Rows, the last offset and the newest stamp of a snapshot or a live view, by SQL."""
    table = await view.sql("SELECT count(*) AS n, max(litelink_offset) AS last, max(streamcast_ts) AS newest FROM log").read_all()
    return list(table.to_pylist()[0].values())


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="demo-")
        cls.addClassCleanup(folder.cleanup)
        command = [BINARY, "demo", "--root", f"{folder.name}/root", "--listen", "127.0.0.1:0", "--rate", "500", "--seed", "7"]
        cls.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        cls.addClassCleanup(cls.process.wait)
        cls.addClassCleanup(cls.process.kill)
        cls.began, cls.banner = time.monotonic(), ""
        for line in cls.process.stdout:
            cls.banner += line
            if "Ctrl-C ends it" in line:
                break
        found = re.search(r"Console\s+http://(\S+?)/", cls.banner)
        assert found, f"the demo did not start: {cls.banner}"
        cls.address = found[1]
        threading.Thread(target=cls.process.stdout.read, daemon=True).start()
        cls.db = readers.connect()
        cls.addClassCleanup(cls.db.close)

    def end_offset(self) -> int:
        with urllib.request.urlopen(f"http://{self.address}/stats", timeout=60) as answer:
            return next(entry["end_offset"] for entry in json.loads(answer.read())["streams"] if entry["name"] == "trades")

    def in_table(self):
        """What DuckDB counts with the banner's own query: rows, first and last offset, and the stamp of the last row."""
        table = re.search(r"iceberg_scan\('([^']+)'\)", self.banner)[1]
        return self.db.execute(
            f"SELECT count(*), min(litelink_offset), max(litelink_offset), max(streamcast_ts) FROM iceberg_scan('{table}')"
        ).fetchone()

    def test_1_rows_in_the_table_are_the_offsets(self):
        looks = 0
        while (ran := time.monotonic() - self.began) < SECONDS or looks < 2:
            self.assertLess(ran, SECONDS + 120, "the table does not come")
            time.sleep(min(10, max(1, SECONDS / 6)))
            frontier = self.end_offset()
            try:
                rows, first, last, newest_us = self.in_table()
            except Exception as error:  # there is no table before the first flush
                self.assertLess(time.monotonic() - self.began, FLUSH_S + SLACK_S, error)
                continue
            if not rows:
                continue
            looks += 1
            trails_s = time.time() - newest_us / 1e6
            say(f"{time.monotonic() - self.began:5.0f} s  next offset {frontier:8,}  DuckDB counts {rows:8,}  offsets {first:,} to {last:,}  trails {trails_s:4.1f} s")
            self.assertEqual((first, rows), (1, last), "rows and offsets differ")
            self.assertLessEqual(last, self.end_offset() - 1)
            self.assertLess(trails_s, FLUSH_S + SLACK_S)

    def test_2_the_lines_of_the_banner_work(self):
        script = re.search(r"pip install duckdb\n(.*?)\nEND", self.banner, re.S)[1]
        self.assertIn("INSTALL iceberg; LOAD iceberg; ", script)
        # The extension comes with the test environment: nothing is downloaded.
        shown = []
        names = {"duckdb": SimpleNamespace(sql=lambda text: self.db.sql(text).fetchall()), "print": shown.append}
        exec(script.replace("INSTALL iceberg; LOAD iceberg; ", "").replace("import duckdb\n", ""), names)  # noqa: S102
        (rows, last), = shown[0]
        self.assertEqual(rows, last)

    def test_3_snapshot_and_live_of_the_official_client(self):
        asyncio.run(self.official())

    async def official(self):
        broker = f"ws://{self.address}/trades"
        async with websockets.connect(broker) as socket:
            metadata = json.loads(await socket.recv())["metadata"]
        async with await Stream.snapshot(metadata) as snapshot:
            rows, last, _ = await counted(snapshot)
            self.assertEqual(rows, last)
            say(f"snapshot, published    {rows:8,} rows")
        async with await Stream.snapshot(metadata, as_of_offset=LATEST, broker=broker) as snapshot:
            now, last, _ = await counted(snapshot)
            self.assertEqual(now, last)
            self.assertGreater(now, rows)
            say(f"snapshot, as of LATEST {now:8,} rows")
        async with await Stream.live(broker) as live:
            best = LIVE_S
            # A machine that stands still for a moment makes an answer old; one of them is young.
            for turn in range(50):
                if turn >= 5 and best < 1:
                    break
                frontier = self.end_offset() - 1
                began = time.monotonic()
                await live.wait_for(frontier)
                rows, last, newest_us = await counted(live)
                took = time.monotonic() - began
                age = time.time() - newest_us / 1e6
                self.assertEqual(rows, last)
                self.assertGreaterEqual(last, frontier)
                self.assertLess(age, LIVE_S)
                best = min(best, age)
                say(f"live                   {rows:8,} rows, the newest {age * 1000:.0f} ms old; answered in {took * 1000:.0f} ms")
                await asyncio.sleep(0.5)
            self.assertLess(best, 1, "no answer over data a second old")

    def test_4_it_ends_in_order(self):
        self.process.terminate()
        self.assertEqual(self.process.wait(60), 0)
