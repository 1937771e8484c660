#!/usr/bin/env python3
"""Kills the broker at random moments under publishers and subscribers, and compares all they were told with the log.

    ./run.py [--kills 300] [--seed N] [--adapter PATH] [--life 0.35] [--keep]

Every life of the broker: plain publishers (single rows and batches, pipelined), exactly-once publishers that repeat
rows from before the crash, subscribers that are live, replaying, filtered, slow, or resume by offset. Then SIGKILL,
at any moment: while it starts, while it recovers, under load, or while it stops after SIGTERM. After the next start
the log is read on and judged:

  lost        an acked row is not at the offset of its ack, or an exactly-once sequence has a hole
  duplicated  a row stands in the log twice
  reordered   a publisher's rows, or a subscriber's offsets, out of order
  reused      an offset carries other bytes than somebody was sent before
  missing     a subscriber saw a row that is gone, or missed one that it was owed
  torn        part of a frame

A killed process leaves the page cache intact: loss of power needs another rig. The broker runs under the
conformance adapter, so `--adapter ../conformance/adapter_reference.py` judges the Python package by the same rules.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True

from actors import ExactlyOnce, Publisher, Subscriber, audit  # noqa: E402
from harness.server import Adapter, Server, StartFailed  # noqa: E402
from ledger import Stream  # noqa: E402
from peer import Peer, rng  # noqa: E402

PATIENCE_S = 60  # ends a wait that is hopeless
SCHEMA = {
    "type": "object",
    "properties": {
        "who": {"type": "string"},
        "n": {"type": "integer"},
        "first": {"type": "integer"},
        "size": {"type": "integer"},
        "pad": {"type": "string"},
    },
    "required": ["who", "n", "first", "size", "pad"],
}


def declaration(name: str, **settings) -> dict:
    return {"name": name, "schema": SCHEMA, "durable": True, "max_replay": None, **settings}


class Storm:
    def __init__(self, args, work: Path):
        self.args = args
        self.rng, self.seed = rng(args.seed)
        config = {
            "streams": [
                declaration("plain"),
                declaration("alone", group_commit=False),
                declaration("once", exactly_once=True),
            ]
        }
        self.server = Server(Adapter(str(Path(args.adapter).resolve())), work / "root", config)
        plain, alone, once = (Stream(s["name"], bool(s.get("exactly_once"))) for s in config["streams"])
        self.streams = [plain, alone, once]
        seed = self.rng.randrange(1 << 30)
        self.actors = [
            Publisher(plain, "p1", seed + 1, batch=1),
            Publisher(plain, "p2", seed + 2, batch=1),
            Publisher(plain, "p3", seed + 3, batch=60, window=4),
            Publisher(alone, "a1", seed + 4, batch=3, window=8),
            Publisher(alone, "a2", seed + 5, batch=1, window=8),
            ExactlyOnce(once, "x1", seed + 6, batch=1),
            ExactlyOnce(once, "x2", seed + 7, batch=25, window=4),
            ExactlyOnce(once, "x3", seed + 8, batch=4),
            Subscriber(plain, "live", seed + 9, start="live"),
            Subscriber(plain, "replaying", seed + 10, start="back"),
            Subscriber(plain, "filtered", seed + 11, start="live", who="p2"),
            Subscriber(plain, "filtered replay", seed + 12, start="back", who="p3"),
            Subscriber(plain, "resuming", seed + 13, start="resume"),
            Subscriber(plain, "slow", seed + 14, start="back", slow=True),
            Subscriber(alone, "resuming", seed + 15, start="resume"),
            Subscriber(once, "resuming", seed + 16, start="resume"),
            Subscriber(once, "live", seed + 17, start="live", who="x1"),
        ]
        self.moments: Counter = Counter()

    async def life(self) -> None:
        """One start, some load, one kill."""
        draw = self.rng.random()
        if draw < 0.1:
            self.moments["starting"] += 1
            await self.killed_while_starting()
            return
        await self.server.start()
        if not await self.audited():
            raise SystemExit("the broker ended on its own: " + self.server.tail())
        stop = asyncio.Event()
        tasks = [asyncio.create_task(actor.run(self.server.port, stop)) for actor in self.actors]
        await asyncio.sleep(self.rng.uniform(0.01, self.args.life))
        if draw < 0.2:
            self.moments["stopping"] += 1
            self.server.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(self.rng.uniform(0, 0.05))
        else:
            self.moments["under load"] += 1
        self.server.kill()
        await self.ended(tasks)

    async def killed_while_starting(self) -> None:
        """The kill comes before, while or just after the broker opens its log."""
        delay = self.rng.uniform(0, self.args.start)
        starting = asyncio.create_task(self.server.start())
        await asyncio.sleep(delay)
        if self.server.process is not None:
            self.server.kill()
        try:
            await starting
        except StartFailed:
            pass
        self.server.kill()

    async def ended(self, tasks: list[asyncio.Task]) -> None:
        done, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
        for task in late:
            task.cancel()
        if late:
            raise SystemExit(f"a connection outlived the broker by {PATIENCE_S} s")
        for task in done:
            task.result()

    async def audited(self) -> bool:
        return all([await audit(stream, self.server.port) for stream in self.streams])

    async def last_life(self) -> None:
        """Let everybody finish in peace, then read the whole log once more from the first row."""
        await self.server.start()
        await self.audited()
        stop = asyncio.Event()
        publishers = [a for a in self.actors if isinstance(a, Publisher)]
        tasks = [asyncio.create_task(actor.run(self.server.port, stop)) for actor in self.actors]
        await asyncio.sleep(0.3)
        stop.set()
        await asyncio.wait(tasks[: len(publishers)], timeout=PATIENCE_S)
        await self.delivered()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not await self.audited():
            raise SystemExit("the broker did not survive its last life: " + self.server.tail())
        for publisher in publishers:
            if isinstance(publisher, ExactlyOnce) and publisher.acked != publisher.stream.highest.get(publisher.who, 0):
                publisher.stream.blame("lost", f"{publisher.who}: acked {publisher.acked}, {publisher.stream.highest}")
        for stream in self.streams:
            await self.whole(stream)
        status = await self.server.stop()
        if status not in (0, -signal.SIGTERM):
            raise SystemExit(f"exit status {status} after SIGTERM")

    async def delivered(self) -> None:
        """Every subscriber that asked for all rows and reads in time has them without another crash."""
        owed = [a for a in self.actors if isinstance(a, Subscriber) and a.who is None and not a.slow]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            behind = [a for a in owed if a.last < max((ack[0] for ack in a.stream.acks), default=0)]
            if not behind or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.025)
        for actor in behind:
            actor.stream.blame("missing", f"{actor.label} is still at {actor.last} {PATIENCE_S} s after the last ack")
        for actor in self.actors:
            if isinstance(actor, Subscriber) and actor.last == 0:
                actor.stream.blame("missing", f"{actor.label} never got a row")

    async def whole(self, stream: Stream) -> None:
        if stream.next == 1:
            return
        peer = await Peer.open(self.server.port, f"/{stream.name}?offset=1")
        await peer.first()
        at = 0
        while at < len(stream.digests):
            for payload in await peer.take():
                if hash(payload) != stream.digests[at]:
                    stream.blame("reused", f"offset {at + 1} changed between two replays")
                at += 1
        peer.close()

    async def run(self) -> None:
        began = time.monotonic()
        for kill in range(self.args.kills):
            await self.life()
            if any(stream.wrong for stream in self.streams) and not self.args.go_on:
                break
            if (kill + 1) % 25 == 0:
                rows = sum(s.next - 1 for s in self.streams)
                print(f"{kill + 1} kills, {rows} rows in the log, {time.monotonic() - began:.0f} s", flush=True)
        else:
            await self.last_life()
        self.report(time.monotonic() - began)

    def report(self, seconds: float) -> None:
        wrong: Counter = Counter()
        for stream in self.streams:
            wrong += stream.wrong
            for example in stream.examples:
                print(example)
        kills = sum(self.moments.values())
        repeated = sum(a.dups for a in self.actors if isinstance(a, ExactlyOnce))
        print(f"seed {self.seed}: {kills} kills ({', '.join(f'{n} {k}' for k, n in self.moments.items())}) in {seconds:.0f} s")
        print(
            f"{sum(s.acked for s in self.streams)} rows acked, {sum(s.next - 1 for s in self.streams)} in the log,"
            f" {sum(s.shown for s in self.streams)} delivered, {repeated} repeats recognised"
        )
        named = ("lost", "duplicated", "reordered", "reused", "missing", "torn")
        others = [kind for kind in wrong if kind not in named]
        print(", ".join(f"{wrong[kind]} {kind}" for kind in (*named, *others)))
        self.failed = bool(wrong)
        print(f"{kills} passed, {sum(wrong.values())} failed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, help="repeat a run (default: a new one, printed at the end)")
    parser.add_argument("--adapter", default=str(HERE.parent / "conformance" / "adapter"))
    parser.add_argument("--life", type=float, default=0.35, help="longest life under load, in seconds")
    parser.add_argument("--start", type=float, default=0.1, help="latest kill of a starting broker, in seconds")
    parser.add_argument("--keep", action="store_true", help="keep the data root and the broker's log")
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first violation")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="crash-", dir=os.environ.get("TMPDIR")))
    storm = Storm(args, work)
    try:
        asyncio.run(storm.run())
    finally:
        storm.server.kill()
        if args.keep:
            print(f"kept {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if storm.failed else 0)


if __name__ == "__main__":
    main()
