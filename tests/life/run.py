#!/usr/bin/env python3
"""Kills the commands of a stream's life after every one of their steps, runs them again, and compares.

    ./run.py [--only migrate,retire,…] [--keep] [--every N]

`STREAMCAST_STEPS=print` makes the program name its steps; `STREAMCAST_STEPS=N` makes it end with SIGKILL after the
N-th. For each command: run it once without a kill, on a copy of a prepared data root; then for every step bring the
copy back, kill there, and look: every table that the document names has to be readable, and its rows are those that
were published. Then run the command again and compare with the undisturbed run: the document (but for times and
names), the rows of all tables, the next offset, the publisher's mark. Last, every few steps, a broker serves the
result: it takes a row, at the offset that is due, and replays what it should.
"""

import argparse
import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True

from harness.lake import duck, metadata_file  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

PROGRAM = os.environ["STREAMCAST_BIN"]
A = {"type": "object", "properties": {"id": {"type": "integer"}, "price": {"type": "number"}, "name": {"type": ["string", "null"]}}, "required": ["id", "price"]}
B = {"type": "object", "properties": {"id": {"type": "integer"}, "extra": {"type": ["number", "null"]}}, "required": ["id"]}
ROWS = 40


class Wrong(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Wrong(what)


def call(*arguments, steps=None, fine=(0,)):
    """Runs the program; its standard error. `steps` is `print` or the number of the step to be killed after."""
    environment = os.environ | ({"STREAMCAST_STEPS": str(steps)} if steps else {})
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120)
    check(done.returncode in fine, f"{' '.join(map(str, arguments))} ended with {done.returncode}: {done.stderr[-400:]}")
    return done


def names(stderr):
    return [line.split(": ", 1)[1] for line in stderr.splitlines() if line.startswith("step ")]


class Place:
    """A data root, a prefix for its tables, and a copy of both to come back to. Tables name files by absolute paths, so
    it is always the same directory."""

    def __init__(self, scratch: Path):
        self.live, self.saved = scratch / "live", scratch / "saved"
        self.root, self.tables = self.live / "root", self.live / "tables"

    def save(self):
        shutil.rmtree(self.saved, ignore_errors=True)
        shutil.copytree(self.live, self.saved)

    def back(self):
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.saved, self.live)

    def document_path(self):
        hint = self.root / "r" / "r.metadata" / "version-hint.text"
        return hint.parent / hint.read_text().strip()

    def document(self):
        return json.loads(self.document_path().read_text())

    def logs(self):
        found = self.document()
        return [*found["sealed_logs"], found["live_log"]]

    def rows(self):
        """(offset, id) of every row that a reader of the tables sees, with each log's own limits."""
        seen = []
        for entry in self.logs():
            try:
                path = metadata_file(entry)
            except FileNotFoundError:
                check("end_offset" not in entry, f"the finished log {entry['name']} has no table")
                continue
            end = entry.get("end_offset", 1 << 62)
            query = f"SELECT litelink_offset o, id FROM log WHERE litelink_offset >= {entry['start_offset']} AND litelink_offset < {end} ORDER BY 1"
            seen += [(row["o"], row["id"]) for row in duck(path, query)]
        offsets = [offset for offset, _ in seen]
        check(offsets == sorted(set(offsets)), f"offsets of the tables are not in order: {offsets}")
        return seen

    def mark(self):
        with sqlite3.connect(self.root / "journal.db") as journal:
            return journal.execute("SELECT publisher, last_seq, last_offset FROM marks").fetchall()

    def shape(self):
        """The document without what is new every time."""
        found = self.document()
        found["manifest"] = found["manifest"] is not None
        if found.get("retirement"):
            found["retirement"]["at"] = 0
        if found.get("pending"):
            found["pending"]["at"] = 0
        return found

    def state(self):
        report = json.loads(call("show", "r", "--root", self.root, "--json").stdout)
        return {"document": self.shape(), "rows": self.rows(), "end": report["end_offset"], "marks": self.mark()}


async def served(place: Place, schema, published, retired=False, ahead=0):
    """A broker serves the root: the next row gets the next offset, and a replay has what it should."""
    end = json.loads(call("show", "r", "--root", place.root, "--json").stdout)["end_offset"]
    stream = {"name": "r", "schema": schema, "durable": True, "exactly_once": True, "replay_published": True, "max_replay": None}
    if published:
        stream["published"] = f"file://{place.tables}"
    server = Server(Adapter(str(HERE.parent / "conformance" / "adapter")), place.root, {"streams": [stream]})
    await server.start()
    try:
        uri = f"ws://127.0.0.1:{server.port}/r"
        if retired:
            refused = subprocess.run([PROGRAM, "publish", uri], input='{"id":1,"price":1.5}\n', capture_output=True, text=True, timeout=60)
            check(refused.returncode == 3, f"a retired stream took a row: {refused.stderr}")
        else:
            row = {"id": 900} | ({"price": 1.5} if "price" in schema["properties"] else {})
            subprocess.run([PROGRAM, "publish", "--quiet", uri], input=json.dumps(row) + "\n", text=True, check=True, timeout=60)
        first = max(place.logs()[-1]["start_offset"], 1) + ahead
        lines = subprocess.run(
            [PROGRAM, "subscribe", uri, "--offset", "0", "--limit", "1"], capture_output=True, text=True, timeout=60
        ).stdout
        check(json.loads(lines)[0] == first, f"a replay starts with {lines!r} and not at {first}")
    finally:
        await server.stop()
    if not retired:
        after = json.loads(call("show", "r", "--root", place.root, "--json").stdout)["end_offset"]
        check(after == end + 1, f"the next row got {after - 1} and not {end}")


def prepare(place: Place, published=False):
    """A stream with rows in its table, rows in files and rows in the journal, and a publisher's mark."""
    shutil.rmtree(place.live, ignore_errors=True)
    place.root.mkdir(parents=True)
    asyncio.run(publish(place, published))


async def publish(place, published):
    stream = {"name": "r", "schema": A, "durable": True, "exactly_once": True}
    if published:
        stream["published"] = f"file://{place.tables}"
    server = Server(Adapter(str(HERE.parent / "conformance" / "adapter")), place.root, {"streams": [stream]})
    for part in (range(1, ROWS // 2 + 1), range(ROWS // 2 + 1, ROWS + 1)):
        await server.start()
        text = "".join(json.dumps({"id": i, "price": i + 0.5, "name": f"n{i}"}) + "\n" for i in part)
        command = [PROGRAM, "publish", "--quiet", "--publisher", "p", "--continue", f"ws://127.0.0.1:{server.port}/r"]
        subprocess.run(command, input=text, text=True, check=True, timeout=60)
        await server.stop()
        if part.start == 1:
            call("flush", "r", "--root", place.root)


PUBLISHED = [(i, i) for i in range(1, ROWS + 1)]


class Case:
    """A command, what it is run on, and what it makes of it."""

    schema, published, retired = A, False, False
    # Offsets without rows at the beginning of the last log.
    ahead = 0

    def __init__(self, place: Place):
        self.place = place

    def prepare(self):
        prepare(self.place, self.published)

    def command(self):
        raise NotImplementedError

    def readable(self):
        """What has to hold right after a kill."""
        rows = self.place.rows()
        check(rows == PUBLISHED[: len(rows)] and len(rows) >= ROWS // 2, f"the tables have {rows}")

    def again(self):
        call(*self.command())

    def result(self):
        return self.place.state()


class Migrate(Case):
    schema = B

    def command(self):
        path = self.place.live / "b.json"
        path.write_text(json.dumps(B))
        return "migrate", "r", "--schema", path, "--root", self.place.root


class MigrateElsewhere(Migrate):
    published = True


class Retire(Case):
    retired = True

    def command(self):
        return "retire", "r", "--root", self.place.root


class Revive(Case):
    def prepare(self):
        super().prepare()
        call("retire", "r", "--root", self.place.root)

    def command(self):
        return "revive", "r", "--root", self.place.root

    def again(self):
        # Once the document has it, it is done, and there is nothing to revive.
        call(*self.command(), fine=(0, 2))


class Flush(Case):
    def command(self):
        return "flush", "r", "--evict", "--root", self.place.root


class Ingest(Case):
    def prepare(self):
        super().prepare()
        path = self.place.live / "more.ndjson"
        path.write_text("".join(json.dumps({"id": i, "price": 0.5, "name": None}) + "\n" for i in range(ROWS + 1, 2 * ROWS + 1)))

    def command(self):
        return "ingest", "r", self.place.live / "more.ndjson", "--root", self.place.root

    def readable(self):
        rows = self.place.rows()
        check(rows == [(i, i) for i in range(1, len(rows) + 1)], f"the tables have {rows}")

    def again(self):
        # A load is not run again when its rows are there; whether they are is what `show` tells.
        end = json.loads(call("show", "r", "--root", self.place.root, "--json").stdout)["end_offset"]
        check(end in (ROWS + 1, 2 * ROWS + 1), f"half of a file is loaded: the next offset is {end}")
        call(*(self.command() if end == ROWS + 1 else ("flush", "r", "--root", self.place.root)))


class Retain(Case):
    def command(self):
        return "retain", "r", "--max-age", "30d", "--root", self.place.root


class CutOff(Case):
    """The first half of retention: the floor moves over a finished log and part of the next."""

    schema = B

    def prepare(self):
        super().prepare()
        call(*Migrate.command(self))
        call("retain", "r", "--max-age", "500ms", "--root", self.place.root)
        time.sleep(0.7)

    def command(self):
        return "maintain", "r", "--root", self.place.root

    def readable(self):
        rows = self.place.rows()
        check(rows in (PUBLISHED, []), f"the tables have {rows}")


class Delete(CutOff):
    """The second half, an hour later."""

    def prepare(self):
        super().prepare()
        call("maintain", "r", "--root", self.place.root)
        path = self.place.document_path()
        found = json.loads(path.read_text())
        found["pending"]["at"] -= 2 * 3600 * 10**6
        path.write_text(json.dumps(found, indent=2))

    def readable(self):
        check(self.place.rows() == [], "rows below the floor are back")

    def result(self):
        state = super().result()
        check(not (self.place.root / "r" / "r").exists(), "the directory of the dropped log is still there")
        check("pending" not in state["document"], "the deletion is still to be done")
        return state


class Restore(Case):
    published = True

    def prepare(self):
        super().prepare()
        call("flush", "r", "--root", self.place.root)
        home = self.place.root / "r"
        shutil.copytree(home / "r.metadata", self.place.tables / "r" / "r.metadata")
        shutil.rmtree(self.place.root)

    def command(self):
        return "restore", "r", "--published", f"file://{self.place.tables}", "--exactly-once", "--root", self.place.root

    def readable(self):
        if (self.place.root / "r").exists():
            try:
                self.place.document()
            except FileNotFoundError:
                return
            check(self.place.rows() == PUBLISHED, "rows of the table are gone")

    def again(self):
        # When the journal has the stream it is restored.
        call(*self.command(), fine=(0, 2))


class Purge(Case):
    """Erased rows leave the table: those of a file that loses some, and those of one that loses all."""

    erased = [*range(3, 9), *range(ROWS // 2 + 1, ROWS + 1)]

    def prepare(self):
        super().prepare()
        call("flush", "r", "--root", self.place.root)
        self.erase()

    def erase(self):
        """What the writer writes for an erasure."""
        with sqlite3.connect(self.place.root / "journal.db") as journal:
            (marker,) = journal.execute("SELECT end_offset FROM streams").fetchone()
            holes = [(offset, offset + 1, marker) for offset in [*self.erased, marker]]
            journal.executemany("INSERT INTO skipped (stream, first_offset, end_offset, marker) VALUES (1, ?, ?, ?)", holes)
            journal.execute("INSERT INTO erasures (stream, marker, records, ts_us) VALUES (1, ?, ?, 1)", (marker, len(self.erased)))
            journal.execute("UPDATE streams SET end_offset = end_offset + 1")
        journal.close()

    def command(self):
        return "maintain", "r", "--root", self.place.root

    def left(self):
        return [row for row in PUBLISHED if row[0] not in self.erased]

    def readable(self):
        rows = self.place.rows()
        check(set(self.left()) <= set(rows) <= set(PUBLISHED), f"the tables have {rows}")

    def result(self):
        state = super().result()
        check(state["rows"] == self.left(), f"the tables have {state['rows']}")
        holes = json.loads((self.place.root / "r" / "r.metadata" / "holes.json").read_text())
        return state | {"holes": holes["holes"]}


class PurgeFinished(Purge):
    """The same in a log that is over, whose rows are counted in the manifest."""

    schema, published, ahead = B, True, 1

    def erase(self):
        call(*Migrate.command(self))
        super().erase()

    def result(self):
        import pyarrow.parquet

        state = super().result()
        # The plain copy may be older until a broker starts.
        manifest = pyarrow.parquet.read_table(self.place.document_path().parent / self.place.document()["manifest"]).to_pylist()
        return state | {"counts": [row["record_count"] for row in manifest]}


CASES = {
    "migrate": Migrate,
    "migrate-published": MigrateElsewhere,
    "retire": Retire,
    "revive": Revive,
    "flush": Flush,
    "ingest": Ingest,
    "retain": Retain,
    "retain-cut-off": CutOff,
    "retain-delete": Delete,
    "restore": Restore,
    "purge": Purge,
    "purge-finished": PurgeFinished,
}


def run(name, kind, place, every):
    case = kind(place)
    case.prepare()
    place.save()
    steps = names(call(*case.command(), steps="print").stderr)
    check(steps, "it names no steps")
    wanted = case.result()
    failures = []
    for number, step in enumerate(steps, 1):
        try:
            place.back()
            call(*case.command(), steps=number, fine=(-9,))
            case.readable()
            case.again()
            got = case.result()
            for key, value in wanted.items():
                check(got[key] == value, f"{key} differs:\n      got  {got[key]}\n      want {value}")
            if number % every == 0 or number == len(steps):
                asyncio.run(served(place, case.schema, case.published, case.retired, case.ahead))
        except Exception as error:  # the next step may be fine
            failures.append(f"{name}: killed after step {number} ({step}): {type(error).__name__}: {error}")
    return len(steps), failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=4, help="serve the result after every so many steps")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    chosen = [name for name in args.only.split(",") if name] or list(CASES)
    passed, failed = 0, 0
    for name in chosen:
        scratch = Path(tempfile.mkdtemp(prefix="life-"))
        started = time.monotonic()
        try:
            steps, failures = run(name, CASES[name], Place(scratch), args.every)
        except Exception as error:
            steps, failures = 1, [f"{name}: {type(error).__name__}: {error}"]
        print(f"{'FAIL' if failures else 'ok  '} {name}: {steps} steps ({time.monotonic() - started:.1f}s)", flush=True)
        for failure in failures:
            print(f"     {failure}")
        passed, failed = passed + steps - len(failures), failed + len(failures)
        if args.keep:
            print(f"     {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
