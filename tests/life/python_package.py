#!/usr/bin/env python3
"""Takes up a stream that the Python package captured, and gives one to the official client: `python_package.py`.

The package writes a stream with every type, in two logs, some rows unpublished; the program restores it from the
published tables on an empty root, goes on with it, and everything is read with the official client, DuckDB and
PyIceberg: what the package published is there byte for byte, the offsets in between are left out, the new rows follow.
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
sys.path[:0] = [str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True

from harness.lake import duck, metadata_file, static_table  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

PROGRAM = os.environ["STREAMCAST_BIN"]
OURS = Adapter(str(HERE.parent / "conformance" / "adapter"))
THEIRS = Adapter(str(HERE.parent / "conformance" / "adapter_reference.py"))
N = ["null"]


def schema(**properties):
    required = [name for name, property_ in properties.items() if "null" not in property_["type"]]
    return {"type": "object", "properties": properties, "required": required}


FIRST = schema(id={"type": "integer"}, old={"type": "string"})
SECOND = schema(
    id={"type": "integer"},
    small={"type": ["integer", "null"], "format": "int32"},
    price={"type": "number"},
    f={"type": ["number", "null"], "format": "float"},
    ok={"type": ["boolean", "null"]},
    name={"type": ["string", "null"]},
    h={"type": ["string", "null"], "contentEncoding": "base16"},
    x={"type": ["string", "null"], "contentEncoding": "base64", "format": "bytes4"},
    p={"type": ["object", "null"], "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": ["array", "null"], "items": {"type": "number"}}}},
    m={"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}},
    l={"type": ["array", "null"], "items": {"type": ["object", "null"], "properties": {"z": {"type": ["integer", "null"]}}}},
)


def row(i):
    return {
        "id": i, "small": None if i % 9 == 0 else -i, "price": i / 3, "f": None if i % 4 == 0 else i / 8, "ok": i % 2 == 0,
        "name": None if i % 5 == 0 else "ä😀" + str(i), "h": "00ff" * (i % 3), "x": None if i % 3 else "AAECAw==",
        "p": None if i % 4 == 1 else {"a": i, "b": [i / 2, 0.5]}, "m": None if i % 4 == 2 else {f"k{i}": "v", "n": None},
        "l": None if i % 4 == 3 else [{"z": i}, None],
    }  # fmt: skip


def check(condition, what):
    if not condition:
        raise AssertionError(what)


async def replay(port, start, count):
    """Rows from an offset on, as they come over the wire."""
    uri = f"ws://127.0.0.1:{port}/r"
    command = [PROGRAM, "subscribe", uri, "--offset", str(start), "--limit", str(count)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode().splitlines()


async def publish(port, rows):
    import streamcast as sc

    async with sc.publish(f"ws://127.0.0.1:{port}/r") as pub:
        return await pub.send_many(rows)


async def captured(scratch, prefix):
    """What the package makes of it; the rows of its second log that are published, as it sends them."""
    stream = {"name": "r", "schema": FIRST, "durable": True, "published": f"file://{prefix}", "max_replay": None}
    server = Server(THEIRS, scratch / "theirs", {"streams": [stream]})
    await server.start()
    await publish(server.port, [{"id": i, "old": f"o{i}"} for i in range(1, 21)])
    await server.stop()
    path = scratch / "second.json"
    path.write_text(json.dumps(SECOND))
    THEIRS.call("migrate", "--root", str(server.root), "--stream", "r", "--schema", str(path))
    stream["schema"] = SECOND
    await server.start()
    await publish(server.port, [row(i) for i in range(21, 41)])
    await server.stop()
    THEIRS.call("publish", "--root", str(server.root), "--stream", "r")
    await server.start()
    sent = await replay(server.port, 21, 20)
    await publish(server.port, [row(41)])
    await server.stop()
    home = server.root / "r"
    shutil.copytree(home / "r.metadata", prefix / "r" / "r.metadata")
    for copy in home.glob("r.m*.*"):
        if copy.is_file():
            shutil.copy(copy, prefix / "r")
    return sent


async def main():
    scratch = Path(tempfile.mkdtemp(prefix="package-"))
    try:
        prefix = scratch / "published"
        sent = await captured(scratch, prefix)
        restored = subprocess.run([PROGRAM, "restore", "r", "--published", f"file://{prefix}", "--root", scratch / "ours"], capture_output=True, text=True)
        check(restored.returncode == 0, restored.stderr)
        stream = {"name": "r", "schema": SECOND, "durable": True, "published": f"file://{prefix}", "max_replay": None, "replay_published": True}
        server = Server(OURS, scratch / "ours", {"streams": [stream]})
        await server.start()
        check(await replay(server.port, 21, 20) == sent, "the rows of the package are not sent as it sent them")
        offsets = list(await publish(server.port, [row(i) for i in range(1, 6)]))
        first = offsets[0]
        check(first > 2**40 and offsets == list(range(first, first + 5)), f"offsets {offsets}")
        await server.stop()
        OURS.call("publish", "--root", str(server.root), "--stream", "r")
        await server.start()
        import streamcast as sc

        # The tables reach over the fence now, which nobody can be sent through.
        uri = f"ws://127.0.0.1:{server.port}/r"
        async with sc.connect(uri, offset=1, catch_up=True) as sub:
            got = [await asyncio.wait_for(sub.recv(), 30) for _ in range(45)]
        check([g[0] for g in got] == [*range(1, 41), *offsets], "the client catches up over both logs and the fence")
        await server.stop()
        hint = server.root / "r" / "r.metadata" / "version-hint.text"
        found = json.loads((hint.parent / hint.read_text().strip()).read_text())
        check([log["name"] for log in found["sealed_logs"]] == ["r"] and found["live_log"]["name"] == "r-v2", "logs")
        live = found["live_log"]
        want = [*range(21, 41), *offsets]
        check([r["o"] for r in duck(metadata_file(live), "SELECT litelink_offset o FROM log ORDER BY 1")] == want, "DuckDB")
        table = static_table(live).scan().to_arrow().sort_by("litelink_offset")
        check(table["litelink_offset"].to_pylist() == want and table["id"].to_pylist() == [*range(21, 41), *range(1, 6)], "PyIceberg")
        check(table["p"].to_pylist()[0] is None and table["p"].to_pylist()[1] == {"a": 22, "b": [11.0, 0.5]}, "nested values")
        async with await sc.Stream.snapshot(hint.as_uri()) as snapshot:
            check((await snapshot.scan().read_all()).num_rows == 45, "the official client's snapshot")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("1 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    asyncio.run(main())
