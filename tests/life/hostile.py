#!/usr/bin/env python3
"""Streams whose names, columns and sizes are unkind: they work all the way into tables, or are refused when declared."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True

from harness.lake import duck, metadata_file, static_table  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

PROGRAM = os.environ["STREAMCAST_BIN"]


def schema(**properties):
    required = [name for name, property_ in properties.items() if "null" not in property_["type"]]
    return {"type": "object", "properties": properties, "required": required}


def nested(levels):
    column = {"type": "integer"}
    for _ in range(levels):
        column = {"type": ["array", "null"], "items": column}
    return schema(d=column)


TEXT, NUMBER = {"type": ["string", "null"]}, {"type": ["integer", "null"]}
STREAMS = {
    "é 😀 stream.v2": (
        schema(**{"ключ": NUMBER, "a b": TEXT, "x.y": NUMBER, "select": NUMBER, "中'`": TEXT}),
        [{"ключ": i, "a b": "\u0000;--", "x.y": i, "select": 1, "中'`": "z"} for i in range(50)],
    ),
    "wide": (
        schema(**{f"c{i}": NUMBER if i % 2 else TEXT for i in range(1000)}),
        [{f"c{i}": (i if i % 2 else f"s{i}") for i in range(0, 1000, 3)} for _ in range(20)],
    ),
    "large": (schema(s={"type": "string"}), [{"s": "x" * (1 << 20)}, {"s": "\u0000ä" * 1000}, {"s": ""}]),
    "nothing": (schema(i=NUMBER), [{}, {"i": None}]),
    "deep": (nested(20), [{"d": None}, {"d": []}]),
    "silent": (schema(i=NUMBER), []),
}


def check(condition, what):
    if not condition:
        raise AssertionError(what)


async def main():
    import streamcast as sc

    scratch = Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        streams = [{"name": name, "schema": spec, "durable": True, "max_replay": None} for name, (spec, _) in STREAMS.items()]
        options = {"streams": streams, "transport_max_bytes": 4 << 20}
        server = Server(Adapter(str(HERE.parent / "conformance" / "adapter")), scratch / "root", options)
        await server.start()
        for name, (_, rows) in STREAMS.items():
            async with sc.publish(f"ws://127.0.0.1:{server.port}/{quote(name, safe='')}", max_size=8 << 20) as pub:
                for row in rows:
                    await pub.send(row)
        await server.stop()
        for name, (spec, rows) in STREAMS.items():
            done = subprocess.run([PROGRAM, "flush", name, "--evict", "--root", server.root], capture_output=True, text=True)
            check(done.returncode == 0, f"{name}: {done.stderr}")
            wider = scratch / "wider.json"
            wider.write_text(json.dumps({**spec, "properties": spec["properties"] | {"new": TEXT}}))
            done = subprocess.run([PROGRAM, "migrate", name, "--schema", wider, "--root", server.root], capture_output=True, text=True)
            check(done.returncode == 0, f"{name}: {done.stderr}")
            hint = server.root / name / f"{name}.metadata" / "version-hint.text"
            sealed = json.loads((hint.parent / hint.read_text()).read_text())["sealed_logs"][0]
            check(duck(metadata_file(sealed), "SELECT count(*) n FROM log")[0]["n"] == len(rows), f"{name}: rows")
            table = static_table(sealed).scan().to_arrow().sort_by("litelink_offset").to_pylist()
            for got, row in zip(table, rows, strict=True):
                check(all(got[key] == row.get(key) for key in spec["properties"]), f"{name}: {str(row)[:200]}")
            async with await sc.Stream.snapshot(hint.as_uri()) as snapshot:
                check((await snapshot.scan().read_all()).num_rows == len(rows), f"{name}: the official client's snapshot")
        deep = scratch / "deep.json"
        deep.write_text(json.dumps(nested(60)))
        done = subprocess.run([PROGRAM, "create", "deeper", "--schema", deep, "--root", scratch / "other"], capture_output=True, text=True)
        check(done.returncode == 2 and "levels" in done.stderr, f"60 levels: {done.returncode} {done.stderr}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{len(STREAMS) + 1} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    asyncio.run(main())
