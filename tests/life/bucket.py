#!/usr/bin/env python3
"""The life of a stream whose tables are in a bucket: captured, migrated, trimmed, lost with its machine, restored.

A real S3 server. The broker captures and publishes; the stream is migrated; the data root is deleted; the stream is
restored from the bucket on an empty one and goes on; in between the official client reads it from the bucket alone.
Then the same for a stream that the Python package captured in the bucket. Commands are killed at some of their steps.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "conformance"), str(HERE.parent / "support")]
sys.dont_write_bytecode = True

import s3  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

PROGRAM = os.environ["STREAMCAST_BIN"]
OURS = Adapter(str(HERE.parent / "conformance" / "adapter"))
THEIRS = Adapter(str(HERE.parent / "conformance" / "adapter_reference.py"))
A = {"type": "object", "properties": {"id": {"type": "integer"}, "price": {"type": "number"}}, "required": ["id", "price"]}
B = {"type": "object", "properties": {"id": {"type": "integer"}, "extra": {"type": ["string", "null"]}}, "required": ["id"]}
FENCE = 1 << 40


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def call(*arguments, step=None):
    """Runs the program; with `step` it is killed after that many steps, if it has so many, and run again."""
    arguments = [PROGRAM, *map(str, arguments)]
    if step:
        subprocess.run(arguments, env=os.environ | {"STREAMCAST_STEPS": str(step)}, capture_output=True, timeout=120)
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    check(done.returncode == 0, f"{arguments[1:]} ended with {done.returncode}: {done.stderr[-500:]}")


def serve(adapter, root, schema, **more):
    stream = {"name": "r", "schema": schema, "durable": True, "published": "s3://bucket/pre", "max_replay": None, "replay_published": True}
    stream |= more
    return Server(adapter, root, {"streams": [stream]})


async def publish(server, rows):
    import streamcast as sc

    async with sc.publish(f"ws://127.0.0.1:{server.port}/r") as pub:
        return list(await pub.send_many(rows))


async def snapshot():
    """Offsets and ids as the official client reads them from the bucket."""
    import streamcast as sc

    async with await sc.Stream.snapshot("s3://bucket/pre/r/r.metadata/version-hint.text") as found:
        table = await found.scan().read_all()
    return list(zip(table["litelink_offset"].to_pylist(), table["id"].to_pylist()))


async def replay(server, start, count, catch_up=True):
    import streamcast as sc

    async with sc.connect(f"ws://127.0.0.1:{server.port}/r", offset=start, catch_up=catch_up) as sub:
        return [(got[0], got[2]["id"]) for got in [await asyncio.wait_for(sub.recv(), 60) for _ in range(count)]]


async def ours(scratch, step):
    root = scratch / "root"
    server = serve(OURS, root, A)
    await server.start()
    await publish(server, [{"id": i, "price": i / 2} for i in range(1, 41)])
    await server.stop()
    call("flush", "r", "--root", root, step=step)
    want = [(i, i) for i in range(1, 41)]
    check(await snapshot() == want, "the bucket after the first publish")
    path = scratch / "b.json"
    path.write_text(json.dumps(B))
    call("migrate", "r", "--schema", path, "--root", root, step=step)
    server = serve(OURS, root, B)
    await server.start()
    await publish(server, [{"id": i, "extra": "x"} for i in range(41, 61)])
    check(await replay(server, 1, 60) == [(i, i) for i in range(1, 61)], "catching up over the migration")
    await server.stop()
    call("flush", "r", "--root", root, step=step)
    want = [(i, i) for i in range(1, 61)]
    check(await snapshot() == want, "the bucket after the migration")
    shutil.rmtree(root)
    call("restore", "r", "--published", "s3://bucket/pre", "--root", root, step=step)
    server = serve(OURS, root, B, replay_published=False)
    await server.start()
    check(await replay(server, 1, 60) == want, "catching up after the restore")
    check(await replay(server, 41, 20, catch_up=False) == want[40:], "the end of the log is back on this machine")
    new = await publish(server, [{"id": 61}, {"id": 62}])
    check(new == [60 + 1 + FENCE, 60 + 2 + FENCE], f"new offsets {new}")
    await server.stop()
    call("retire", "r", "--root", root, step=step)
    want += list(zip(new, (61, 62)))
    check(await snapshot() == want, "the bucket after the end")
    shutil.rmtree(root)
    call("restore", "r", "--published", "s3://bucket/pre/r", "--revive", "--root", root)
    server = serve(OURS, root, B)
    await server.start()
    check(await publish(server, [{"id": 63}]) == [new[-1] + 1], "a revived stream goes on where it ended")
    await server.stop()
    call("flush", "r", "--root", root)
    check(await snapshot() == [*want, (new[-1] + 1, 63)], "the bucket after the revival")


async def theirs(scratch):
    server = serve(THEIRS, scratch / "theirs", A)
    await server.start()
    await publish(server, [{"id": i, "price": i / 2} for i in range(1, 31)])
    await server.stop()
    THEIRS.call("publish", "--root", str(server.root), "--stream", "r")
    want = [(i, i) for i in range(1, 31)]
    check(await snapshot() == want, "the bucket of the package")
    root = scratch / "taken"
    call("restore", "r", "--published", "s3://bucket/pre", "--root", root)
    server = serve(OURS, root, A)
    await server.start()
    check(await replay(server, 1, 30) == want, "the rows of the package")
    new = await publish(server, [{"id": 31, "price": 0.5}])
    check(new[0] == 31 + FENCE, f"new offset {new}")
    await server.stop()
    call("flush", "r", "--root", root)
    check(await snapshot() == [*want, (new[0], 31)], "the bucket with rows of both")


async def behind(scratch):
    """A consumer that is further behind than the broker replays reads the bucket, and then what comes."""
    import streamcast as sc

    server = serve(OURS, scratch / "root", A, max_replay=5, replay_published=False)
    await server.start()
    await publish(server, [{"id": i, "price": i / 2} for i in range(1, 41)])
    await server.stop()
    call("flush", "r", "--evict", "--root", server.root)
    await server.start()
    await publish(server, [{"id": i, "price": i / 2} for i in range(41, 44)])
    uri = f"ws://127.0.0.1:{server.port}/r"
    try:
        async with sc.connect(uri, offset=1):
            check(False, "what lies only in the bucket was replayed")
    except sc.NotReplayable:
        pass
    async with sc.connect(uri, offset=1, catch_up=True) as sub:
        found = [(got[0], got[2]["id"]) for got in [await asyncio.wait_for(sub.recv(), 60) for _ in range(43)]]
        check(found == [(i, i) for i in range(1, 44)], f"catching up: {found}")
        await publish(server, [{"id": 44, "price": 1.0}])
        check((await asyncio.wait_for(sub.recv(), 60))[0] == 44, "the first live row")
    await server.stop()


async def in_a_bucket(scene):
    with s3.Server("bucket") as server:
        os.environ.update(server.environment())
        scratch = Path(tempfile.mkdtemp(prefix="bucket-"))
        try:
            await scene(scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


async def main():
    passed = 0
    for step in (None, 3, 8):
        await in_a_bucket(lambda scratch: ours(scratch, step))
        passed += 1
        print(f"ok   life in a bucket, killed at step {step}", flush=True)
    for scene, what in ((theirs, "a stream of the Python package, taken up from a bucket"), (behind, "catching up from a bucket, live behind it")):
        await in_a_bucket(scene)
        passed += 1
        print(f"ok   {what}", flush=True)
    print(f"{passed} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    asyncio.run(main())
