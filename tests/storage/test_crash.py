"""The committer is killed at each of its steps; what was asked is asked again, and the table is as if nothing had been."""

import shutil
import tempfile
import unittest
from pathlib import Path

import readers
import tables

NOON_MS = 1_900_000_000_000
HOUR_MS = 3_600_000


class Crash(unittest.TestCase):
    def setUp(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="crash-"))
        self.addCleanup(shutil.rmtree, self.root)

    def file(self, log: str, start: int, end: int, kind: str = "sealed") -> dict:
        name = tables.new_name(kind, start, end)
        return tables.parquet(self.root / log / name, f"file://{self.root}/{log}/{name}", tables.rows(start, end))

    def life(self, log: str) -> list[tuple[str, dict]]:
        """What happens to a table from its beginning to its end."""
        location = f"file://{self.root}/{log}"
        parts = [self.file(log, start, start + 10) for start in range(1, 41, 10)]
        return [
            ("create", {"location": location, "schema": tables.SCHEMA}),
            ("append", {"files": parts[:2], "issued_through": 20, "writer_epoch": 1, "now_ms": NOON_MS}),
            ("append", {"files": parts[2:], "issued_through": 40, "writer_epoch": 1, "now_ms": NOON_MS + 1}),
            ("replace", {"start": 1, "end": 31, "files": [self.file(log, 1, 31, "compacted")],
                         "now_ms": NOON_MS + 2}),
            ("truncate", {"floor": 31, "now_ms": NOON_MS + 3}),
            ("expire", {"retention_s": 3600, "now_ms": NOON_MS + HOUR_MS + 10}),
            ("retire", {"through": 40, "at": "2026-11-29T19:17:55+00:00"}),
        ]

    def run_with(self, log: str, steps: list, kill_at: int) -> bool:
        """Goes through the steps, killed at mark `kill_at`; whether it came that far."""
        environment = {"STREAMCAST_STEPS": str(kill_at)}
        committer, killed = tables.Committer(environment), False
        for op, fields in steps:
            try:
                answer = committer.ask(op, **fields)
            except (RuntimeError, BrokenPipeError):
                self.assertEqual(-9, committer.process.wait())
                committer.close()
                self.readable(log)
                killed = True
                committer = tables.Committer({"STREAMCAST_STEPS": ""})
                if op != "create":
                    committer.do("open", location=steps[0][1]["location"])
                answer = committer.ask(op, **fields)
            self.assertNotIn("error", answer, (op, answer))
        committer.close()
        return killed

    def readable(self, log: str) -> None:
        """At every moment there is a state that a reader can read."""
        if (self.root / log / "metadata/version-hint.text").exists():
            offsets = [row["litelink_offset"] for row in readers.by_pyiceberg(str(self.root / log))]
            self.assertIn(offsets, [[], list(range(1, 21)), list(range(1, 41)), list(range(31, 41))])

    def test_at_every_step(self) -> None:
        for kill_at in range(1, 200):
            log = f"log{kill_at}"
            killed = self.run_with(log, self.life(log), kill_at)
            found = readers.by_pyiceberg(str(self.root / log))
            self.assertEqual([readers.canonical(row) for row in tables.rows(31, 41)], found, kill_at)
            check = tables.Committer({"STREAMCAST_STEPS": ""})
            state = check.do("open", location=f"file://{self.root}/{log}")
            self.assertEqual((10, [31, 41], 40), (state["rows"], state["extent"], state["issued_through"]))
            # What the killed one left goes with the sweep, and nothing else.
            check.do("sweep", dry_run=False, min_age_s=0)
            self.assertEqual(found, readers.by_pyiceberg(str(self.root / log)))
            data = list((self.root / log).glob("data/**/*.parquet"))
            self.assertEqual(1, len(data), kill_at)
            check.do("delete", location=f"file://{self.root}/{log}", dry_run=False)
            check.close()
            self.assertFalse((self.root / log).exists())
            if not killed:
                break
        self.assertGreater(kill_at, 15)

    def test_while_it_is_deleted(self) -> None:
        for kill_at in range(1, 20):
            log = f"deleted{kill_at}"
            location = f"file://{self.root}/{log}"
            self.run_with(log, self.life(log), 0)
            committer = tables.Committer({"STREAMCAST_STEPS": str(kill_at)})
            try:
                committer.do("delete", location=location, dry_run=False)
            except (RuntimeError, BrokenPipeError):
                self.assertEqual(-9, committer.process.wait())
                again = tables.Committer({"STREAMCAST_STEPS": ""})
                again.do("delete", location=location, dry_run=False)
                again.close()
                self.assertFalse((self.root / log).exists())
                continue
            finally:
                committer.close()
            break
        self.assertEqual(4, kill_at)
