#!/usr/bin/env python3
"""Steady load for ten minutes: memory, descriptors and feeds stay flat, and nothing is lost on the way.

    ./run.py [--minutes 10] [--rate 400]

Publishers of every kind, live and filtered subscribers, some that come and go with replays, some that stall until they
are dropped. Memory is sampled every few seconds; after a warm-up its trend over the rest has to be level.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
sys.dont_write_bytecode = True

from broker import A, Broker, Closed, row, rows, stream  # noqa: E402

WARM_UP = 0.25  # of the whole time
MAX_GROWTH_BYTES = 12 << 20  # of resident memory, by trend, over the time after the warm-up


class Soak:
    def __init__(self, args):
        self.args = args
        self.stop = asyncio.Event()
        self.memory: list[tuple[float, int]] = []
        self.files: list[int] = []
        self.acked = self.read = self.dropped = self.replays = 0
        self.wrong: list[str] = []

    async def publisher(self, broker: Broker, name: str, query: str, batch: int) -> None:
        peer, hello = await broker.attach(name, query)
        seq, pause = 1, batch / self.args.rate
        while not self.stop.is_set():
            text = rows(seq, batch, "x" * 400) if batch > 1 else row(seq, "y")
            peer.send((f"[{seq},{text}]" if "publisher" in hello else text).encode())
            reply = json.loads(await peer.first())
            if len(reply.get("ok", ())) != batch:
                self.wrong.append(f"reply {reply}")
                return
            self.acked += batch
            seq += batch
            await asyncio.sleep(pause)

    async def subscriber(self, broker: Broker, name: str, query: str = "", gaps: bool = False) -> None:
        peer, hello = await broker.attach(name, query)
        last = hello["end_offset"] - 1
        while not self.stop.is_set():
            try:
                taken = await asyncio.wait_for(peer.take(), 5)
            except TimeoutError:
                continue
            for payload in taken:
                offset = int(payload[1 : payload.index(b",")])
                if offset != last + 1 and not (gaps and offset > last):
                    self.wrong.append(f"{name}{query}: {offset} after {last}")
                    return
                last = offset
            self.read += len(taken)

    async def visitor(self, broker: Broker, name: str) -> None:
        """Replays the last rows, follows for a moment, leaves: politely or not."""
        back = 0
        while not self.stop.is_set():
            first, hello = await broker.attach(name)
            first.close()
            start = max(1, hello["end_offset"] - 3000)
            peer, hello = await broker.attach(name, f"?offset={start}")
            got = 0
            while got < hello["replay"][1] - start:
                got += len(await peer.take())
            self.replays += 1
            back += 1
            peer.close() if back % 2 else peer.abort()
            await asyncio.sleep(0.2)

    async def staller(self, broker: Broker, name: str) -> None:
        """Never reads; is dropped in the end and comes again."""
        while not self.stop.is_set():
            peer, _ = await broker.attach(name, receive_buffer=4096)
            peer.transport.pause_reading()
            await asyncio.sleep(30)
            peer.transport.resume_reading()
            try:
                while not self.stop.is_set():
                    await asyncio.wait_for(peer.take(), 1)
            except Closed as end:
                self.dropped += end.code == 4429
            except TimeoutError:
                pass
            peer.abort()

    async def sampler(self, broker: Broker) -> None:
        began = time.monotonic()
        while not self.stop.is_set():
            self.memory.append((time.monotonic() - began, broker.resident_bytes()))
            self.files.append(broker.open_files())
            if len(self.memory) % 12 == 1:
                print(f"{self.memory[-1][0]:5.0f} s  {self.memory[-1][1] / 1e6:6.1f} MB  {self.files[-1]} files", flush=True)
            await asyncio.sleep(5)

    async def run(self) -> None:
        async with Broker(
            stream("plain", A, max_replay=None, max_backlog=512),
            stream("once", A, max_replay=None, exactly_once=True),
            stream("live", durable=False),
        ) as broker:
            work = [
                self.publisher(broker, "plain", "?publish", 1),
                self.publisher(broker, "plain", "?publish", 20),
                self.publisher(broker, "once", "?publish&publisher=p", 5),
                self.subscriber(broker, "once"),
                self.sampler(broker),
                *(self.subscriber(broker, "plain") for _ in range(20)),
                *(self.subscriber(broker, "plain", "?where=%7B%22name%22:%22y%22%7D", gaps=True) for _ in range(20)),
                *(self.visitor(broker, "plain") for _ in range(4)),
                *(self.staller(broker, "plain") for _ in range(4)),
            ]
            tasks = [asyncio.create_task(job) for job in work]
            done, _ = await asyncio.wait(tasks, timeout=self.args.minutes * 60, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                self.wrong.append(f"ended early: {task.exception()!r}")
            self.stop.set()
            await asyncio.sleep(1)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            if not broker.alive:
                self.wrong.append("the broker died: " + broker.tail())

    def judge(self) -> int:
        settled = self.memory[int(len(self.memory) * WARM_UP) :]
        times, sizes = [t for t, _ in settled], [m for _, m in settled]
        mean_t, mean_m = sum(times) / len(times), sum(sizes) / len(sizes)
        spread = sum((t - mean_t) ** 2 for t in times) or 1
        slope = sum((t - mean_t) * (m - mean_m) for t, m in settled) / spread
        growth = slope * (times[-1] - times[0])
        print(f"{self.acked} rows acked, {self.read} read, {self.replays} replays, {self.dropped} drops")
        print(f"memory {min(sizes) / 1e6:.1f} to {max(sizes) / 1e6:.1f} MB, trend {growth / 1e6:+.2f} MB in {times[-1] - times[0]:.0f} s")
        if growth > MAX_GROWTH_BYTES:
            self.wrong.append(f"memory grew by {growth / 1e6:.1f} MB")
        if max(self.files[-3:]) > self.files[len(self.files) // 4] + 20:
            self.wrong.append(f"descriptors grew: {self.files[len(self.files) // 4]} to {self.files[-1]}")
        for text in self.wrong:
            print("FAIL", text)
        print(f"{int(not self.wrong)} passed, {int(bool(self.wrong))} failed")
        return 1 if self.wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=400, help="rows a second of each publisher")
    soak = Soak(parser.parse_args())
    asyncio.run(soak.run())
    sys.exit(soak.judge())


if __name__ == "__main__":
    main()
