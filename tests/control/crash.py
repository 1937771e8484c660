#!/usr/bin/env python3
"""Kills the broker at random moments of operations, and judges what the registry says after the next start.

    ./crash.py [--kills 20] [--seed N] [--adapter PATH] [--streams 3] [--keep]

Streams are declared, served, stopped, redeclared, migrated and now and then retired, while an exactly-once publisher
writes to those that are served. Then SIGKILL, while a call or its operation is under way. After the next start the call under way is sent again under its key:
it must be accepted, whether it was before or not. Then every operation has ended well, every stream is what its last
accepted call says, under the identity that it has had from the beginning, and every acknowledged row is there once.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fleet import HERE, OPTIONS, Failure, Managed, check, settled

from harness.control import basic  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402
from harness.ws import Conn  # noqa: E402

LOST = (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError)


class Rows:
    """Publishes numbered rows to one stream whenever it is served, and remembers what was acknowledged."""

    def __init__(self, stream: Managed):
        self.stream, self.sent, self.acked = stream, 0, 0

    async def publish(self, port: int) -> None:
        while True:
            try:
                peer = await Conn.open(port, f"/{self.stream.name}?publish&publisher=p", headers=basic("admin"))
                hello = await peer.recv(5)
                if hello.kind == "text":
                    await self.feed(peer, json.loads(hello.text)["publisher"]["last_seq"])
                peer.abort()
            except LOST:
                pass
            await asyncio.sleep(0.01)

    async def feed(self, peer: Conn, last_seq: int) -> None:
        check(self.acked <= last_seq <= self.sent, f"{self.stream.name}: acked {self.acked}, mark {last_seq}, sent {self.sent}")
        self.acked = last_seq
        while True:
            number = self.acked + 1
            self.sent = max(self.sent, number)
            peer.send(f'[{number},{{"id":{number}}}]')
            reply = await peer.recv(5)
            if reply.kind != "text":
                return
            check("ok" in json.loads(reply.text), f"{self.stream.name}: row {number}: {reply.text}")
            self.acked = number
            await asyncio.sleep(0.001)

    async def judge(self, port: int, first: int) -> None:
        """Reads the log from `first` on: every acknowledged row once, in order."""
        peer = await Conn.open(port, f"/{self.stream.name}?offset={first}", headers=basic("admin"))
        hello = await peer.recv(60)
        check(hello.kind == "text", f"{self.stream.name}: {hello}")
        start, end = json.loads(hello.text)["replay"] or (0, 0)
        seen = []
        for _ in range(end - start):
            row = await peer.recv(60)
            check(row.kind == "text", f"{self.stream.name}: {row}")
            seen.append(json.loads(row.text)[2]["id"])
        peer.abort()
        wanted = list(range(seen[0], seen[0] + len(seen))) if seen else []
        check(seen == wanted, f"{self.stream.name}: rows out of order or twice")
        check(not seen or seen[-1] >= self.acked, f"{self.stream.name}: acknowledged {self.acked}, last is {seen[-1:]}")


async def change(stream: Managed, port: int) -> None:
    """Changes a stream until the broker dies."""
    while True:
        try:
            if stream.call is None:
                stream.next()
            stream.accepted(*await stream.call.send(port))
            view = await settled(port, stream.name)
            stream.judge(view)
            stream.call = None
        except LOST:
            await asyncio.sleep(0.01)
        await asyncio.sleep(stream.dice.random() * 0.05)


async def until_the_kill(tasks: list, streams: list[Managed], seconds: float) -> int:
    """Lets a life pass, and then waits for a moment at which something is under way. How many operations are."""
    await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    while all(stream.call is None for stream in streams) and not any(task.done() for task in tasks):
        await asyncio.sleep(0.001)
    return sum(stream.call is not None for stream in streams)


async def cancelled(tasks: list) -> None:
    """Until all have ended: a wait that is just over swallows a cancellation."""
    while not all(task.done() for task in tasks):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=0.1)


async def verdict(streams: list[Managed], rows: list[Rows], port: int) -> None:
    for stream, written in zip(streams, rows):
        if stream.call is not None:
            stream.accepted(*await stream.call.send(port))
            stream.call = None
        if stream.desired is None:
            continue
        view = await settled(port, stream.name)
        stream.judge(view)
        if stream.desired in ("serving", "retired"):
            await written.judge(port, 0)


async def run(args, work: Path) -> dict:
    dice = random.Random(args.seed)
    server = Server(Adapter(str(args.adapter)), work / "root", dict(OPTIONS))
    counts = {"kills": 0, "operations cut short": 0, "changes": 0, "rows": 0}
    streams = [Managed(f"s{n}", dice) for n in range(args.streams)]
    rows = [Rows(stream) for stream in streams]
    before = {"changes": 0, "rows": 0}
    await server.start()
    try:
        for kill in range(args.kills):
            if all(stream.desired == "retired" for stream in streams):
                before = {key: counts[key] for key in ("changes", "rows")}
                streams = [Managed(f"s{kill}-{n}", dice) for n in range(args.streams)]
                rows = [Rows(stream) for stream in streams]
            tasks = [asyncio.create_task(change(stream, server.port)) for stream in streams]
            tasks += [asyncio.create_task(written.publish(server.port)) for written in rows]
            under_way = await until_the_kill(tasks, streams, dice.uniform(0.01, args.life))
            server.kill()
            await cancelled(tasks)
            for task in tasks:
                if not task.cancelled() and isinstance(task.exception(), Failure):
                    raise task.exception()
            await server.start()
            await verdict(streams, rows, server.port)
            counts["kills"] += 1
            counts["operations cut short"] += under_way
            counts["changes"] = before["changes"] + sum(stream.revision for stream in streams)
            counts["rows"] = before["rows"] + sum(written.acked for written in rows)
        check(await server.stop() == 0, "the broker did not stop in order")
    finally:
        server.kill()
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--streams", type=int, default=3)
    parser.add_argument("--life", type=float, default=0.4, help="seconds of the longest life")
    parser.add_argument("--adapter", type=Path, default=HERE.parent / "conformance" / "adapter")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="control-crash-"))
    try:
        counts = asyncio.run(run(args, work))
        print(f"seed {args.seed}: " + ", ".join(f"{value} {key}" for key, value in counts.items()))
        print("1 passed, 0 failed")
    except Failure as failure:
        print(f"seed {args.seed}: {failure}")
        args.keep = True
        print("0 passed, 1 failed")
        sys.exit(1)
    finally:
        if args.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
