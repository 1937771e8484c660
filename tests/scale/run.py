#!/usr/bin/env python3
"""5,000 idle and 1,000 active connections on one broker with two shards.

    ./run.py [--idle 5000] [--active 1000] [--rows 200]

Every active subscriber gets every row in order, the idle ones stay and get theirs, connections are spread evenly,
and what they took is given back. Figures are printed; what is asserted is counts and memory, never time.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.dont_write_bytecode = True

from broker import A, Broker, http, row, stream  # noqa: E402

MAX_RATIO = 1.2  # most connections of a shard to fewest
MAX_IDLE_BYTES = 8192  # resident memory of an idle subscriber; the aim is half of it


class Scale:
    def __init__(self, args):
        self.args = args
        self.wrong: list[str] = []
        self.checks = 0

    def check(self, holds: bool, text: str) -> None:
        self.checks += 1
        if not holds:
            self.wrong.append(text)
        print(("ok   " if holds else "FAIL ") + text, flush=True)

    async def attach(self, broker: Broker, name: str, count: int) -> list:
        """Subscribers, opened as fast as this side can."""
        gate, began = asyncio.Semaphore(64), time.monotonic()

        async def one():
            async with gate:
                return (await broker.attach(name))[0]

        peers = await asyncio.gather(*(one() for _ in range(count)))
        print(f"     {count} connections in {time.monotonic() - began:.1f} s")
        return peers

    async def spread(self, broker: Broker, want: int) -> None:
        found = {k: v for k, v in (await broker.metrics()).items() if k.startswith("streamcast_connections{")}
        self.check(len(found) == 2, f"two shards: {found}")
        self.check(abs(sum(found.values()) - want) <= 2, f"{sum(found.values()):.0f} of {want} connections counted")
        fewest = min(found.values(), default=0)
        ratio = max(found.values(), default=0) / max(1, fewest)
        self.check(ratio < MAX_RATIO, f"most to fewest connections of a shard: {ratio:.3f}")

    async def deliver(self, broker: Broker, peers: list) -> None:
        """Rows to all active subscribers at 50 a second."""
        rows, began = self.args.rows, time.monotonic()

        async def read(peer) -> bool:
            seen: list[int] = []
            while len(seen) < rows:
                seen += [int(payload[1 : payload.index(b",")]) for payload in await peer.take()]
            return seen == list(range(1, rows + 1))

        readers = [asyncio.create_task(read(peer)) for peer in peers]
        publisher, _ = await broker.attach("busy", "?publish")
        for i in range(rows):
            publisher.send(row(i).encode())
            await asyncio.sleep(0.02)
        done, late = await asyncio.wait(readers, timeout=120)
        whole = sum(not task.exception() and task.result() for task in done)
        for task in late:
            task.cancel()
        self.check(whole == len(peers), f"{whole} of {len(peers)} subscribers got {rows} rows in order")
        print(f"     {rows * len(peers)} frames in {time.monotonic() - began:.1f} s")
        publisher.close()

    async def run(self) -> None:
        idle, active = self.args.idle, self.args.active
        # All cores run a shard; the writer shares the last one.
        cores = ("--cores", "0-1", "--writer-core", "1", "--background-cores", "1")
        async with Broker(stream("idle", A), stream("busy", A), args=cores) as broker:
            await broker.publish("busy")
            files, memory = broker.open_files(), broker.resident_bytes()
            print(f"     {memory / 1e6:.1f} MB resident without connections")
            busy = await self.attach(broker, "busy", active)
            await self.spread(broker, active)
            before = broker.resident_bytes()
            quiet = await self.attach(broker, "idle", idle)
            await self.spread(broker, active + idle)
            each = (broker.resident_bytes() - before) / idle
            self.check(each < MAX_IDLE_BYTES, f"{each:.0f} bytes resident for an idle subscriber")
            await self.deliver(broker, busy)
            await broker.publish("idle", row(1))
            woken = await asyncio.gather(*(asyncio.wait_for(peer.first(), 60) for peer in quiet), return_exceptions=True)
            got = sum(isinstance(payload, bytes) for payload in woken)
            self.check(got == idle, f"{got} of {idle} idle subscribers got their row")
            streams = json.loads((await http(broker.port, "GET", "/stats")).text)["streams"]
            self.check([s["subscribers"] for s in streams] == [idle, active], f"subscribers in /stats: {streams}")
            for number, peer in enumerate(busy + quiet):
                peer.close() if number % 2 else peer.abort()
            for _ in range(300):
                if broker.open_files() <= files + 2:
                    break
                await asyncio.sleep(0.1)
            self.check(broker.open_files() <= files + 2, f"{broker.open_files()} descriptors open, {files} at first")
            print(f"     {broker.resident_bytes() / 1e6:.1f} MB resident after all have gone")
            self.check(await broker.stop() == 0, "stops in order")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--active", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=200)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < args.idle + args.active + 500:
        sys.exit(f"{hard} descriptors are too few; raise the hard limit (ulimit -Hn)")
    scale = Scale(args)
    asyncio.run(scale.run())
    print(f"{scale.checks - len(scale.wrong)} passed, {len(scale.wrong)} failed")
    sys.exit(1 if scale.wrong else 0)


if __name__ == "__main__":
    main()
