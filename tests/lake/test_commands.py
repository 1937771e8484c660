"""The commands that look at a data root, put it in order, and load files into it."""

import asyncio
import json
import os
import pty
import subprocess
import unittest
from pathlib import Path

from served import BINARY, Served


def call(*arguments: str | Path, fine: int = 0) -> str:
    done = subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == fine, f"{arguments}: {done.returncode}, {done.stderr}"
    return done.stdout


def on_a_terminal(*arguments: str | Path) -> str:
    """What a command writes to standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([BINARY, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 4096):
            written += chunk
    except OSError:
        pass  # the other end is closed
    os.close(ours)
    assert process.wait(60) == 0, written
    return written.decode()


def below(root: Path) -> dict[str, int]:
    """Sizes of the files of streams; the databases of the root itself are written by whoever opens it."""
    return {str(path): path.stat().st_size for path in root.glob("*/**/*") if path.is_file() and path.name != ".lock"}


class Commands(unittest.TestCase):
    def test_a_root_is_maintained_from_outside(self):
        """A broker with `maintain = false` moves nothing; `maintain` does, and a dry run tells and changes nothing."""
        with Served("maintain = false, target_seal_rows = 500, compact_min_files = 2") as broker:
            asyncio.run(broker.publish(0, 2_000))
            broker.stop()
            root = broker.root
            show = lambda: json.loads(call("show", "t", "--root", root, "--json"))  # noqa: E731
            self.assertEqual((show()["unsealed_rows"], show()["unpublished_rows"]), (2_000, 2_000))
            self.assertEqual(broker.published(), [])
            before = below(root)
            call("maintain", "--root", root, "--dry-run")
            self.assertEqual(below(root), before)
            self.assertEqual(show()["unsealed_rows"], 2_000)
            call("maintain", "--root", root)
            self.assertEqual(broker.published(), list(range(1, 2_001)))
            self.assertEqual((show()["unsealed_rows"], show()["unpublished_rows"]), (0, 0))
            self.assertLess(show()["logs"][0]["files"]["files"], 4)
            text = call("show", "t", "--root", root)
            for part in ("next offset 2001", "log t", "2000 rows", "published to 2001", "columns id, note"):
                self.assertIn(part, text)
            self.assertIn("offsets 1 to 2000", call("streams", "--root", root))
            # Retention: looked at, then set; by now every row is older than a millisecond.
            before = below(root)
            self.assertIn("2001", call("retain", "t", "--max-age", "1ms", "--dry-run", "--root", root))
            self.assertEqual((below(root), show()["retention_us"]), (before, None))
            call("retain", "t", "--max-age", "30d", "--root", root)
            self.assertEqual(show()["retention_us"], 30 * 86_400 * 1_000_000)
            call("retain", "t", "--max-age", "none", "--root", root)
            self.assertIsNone(show()["retention_us"])

    def test_a_load_tells_how_far_it_is(self):
        """A line on a terminal that is written over; nothing of it elsewhere."""
        with Served() as broker:
            broker.stop()
            rows = broker.home / "rows.ndjson"
            rows.write_text("".join(f'{{"id":{each},"note":"n{each}"}}\n' for each in range(300_000)))
            line = on_a_terminal("ingest", "t", rows, "--root", broker.root)
            self.assertIn("rows", line)
            self.assertIn("\r", line)
            plain = subprocess.run([BINARY, "ingest", "t", rows, "--root", broker.root], capture_output=True, text=True, timeout=60)
            self.assertEqual((plain.returncode, plain.stderr), (0, ""))
            self.assertIn("300000 rows loaded", plain.stdout)
            self.assertEqual(len(broker.published()), 600_000)

    def test_a_load_that_fails_says_what_is_loaded(self):
        with Served() as broker:
            broker.stop()
            good, bad = broker.home / "good.ndjson", broker.home / "bad.ndjson"
            good.write_text('{"id":0}\n{"id":1}\n')
            bad.write_text('{"id":2}\n{"id":"x"}\n{"id":4}\n')
            command = [BINARY, "ingest", "t", good, bad, "--root", broker.root]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 4, done.stderr)
            for part in ("nothing was loaded", f"row 2 of {bad}", "column id takes an integer of 64 bits"):
                self.assertIn(part, done.stderr)
            bad.write_text(bad.read_text().replace('"x"', "3"))
            call("ingest", "t", good, bad, "--skip-rows", "1", "--root", broker.root)
            self.assertEqual(broker.published(), list(range(1, 5)))


if __name__ == "__main__":
    unittest.main()
