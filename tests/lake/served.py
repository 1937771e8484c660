"""A broker with eager movers, and what readers and subscribers find of its stream `t`."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import websockets

REPOSITORY = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("STREAMCAST_BIN", str(REPOSITORY / "target/release/streamcast-uring"))
EAGER = "flush_every_s = 0.4, seal_every_s = 0.05, publish_every_s = 0.1, compact_every_s = 0.1, clean_every_s = 0.2, " \
        "target_seal_rows = 500, compact_min_files = 3"
PATIENCE = 60


class Served:
    """`with Served() as broker:`; `lake` is an inline table, `stream` more keys of the stream."""

    def __init__(self, lake: str = EAGER, head: str = "", stream: str = "", env: dict | None = None):
        self.home = Path(tempfile.mkdtemp(prefix="lake-"))
        self.root = self.home / "root"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.config = self.home / "streamcast.toml"
        self.config.write_text(f"""listen = "127.0.0.1:{self.port}"
root = "root"
lake = {{ {lake} }}
{head}
[[stream]]
name = "t"
schema = '{{"type":"object","properties":{{"id":{{"type":"integer"}},"note":{{"type":["string","null"]}}}},"required":["id"]}}'
max_replay = "unbounded"
{stream}
""")
        self.env = os.environ | (env or {})
        self.process = None

    def start(self) -> None:
        with open(self.home / "log", "ab") as log:
            command = [BINARY, "--config", self.config]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.env)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"it does not serve: {self.log()[-2000:]}")

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        assert status == 0, f"ended with {status}: {self.log()[-2000:]}"

    def log(self) -> str:
        return (self.home / "log").read_text()

    def __enter__(self) -> "Served":
        self.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self.kill()
        if kind and os.environ.get("KEEP"):
            print(f"kept {self.home}")
        else:
            shutil.rmtree(self.home, ignore_errors=True)

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        found = re.findall(r'^(streamcast_\w+)(?:\{stream="t"\})? ([-+.\deE]+)$', text, re.M)
        return {name: float(value) for name, value in found}

    async def publish(self, first: int, count: int, per_frame: int = 100) -> int:
        """Publishes ids from `first` on; returns the id after the last one that was acknowledged."""
        async with websockets.connect(f"ws://127.0.0.1:{self.port}/t?publish=1", max_size=None) as socket:
            await socket.recv()
            for start in range(first, first + count, per_frame):
                rows = [{"id": each, "note": f"n{each}"} for each in range(start, min(start + per_frame, first + count))]
                await socket.send(json.dumps(rows))
                answer = json.loads(await socket.recv())
                assert "ok" in answer, answer
                first_done = start + len(rows)
        return first_done

    async def replay(self, offset: int = 1) -> list[tuple[int, int]]:
        """Offset and id of every row from `offset` to the end."""
        uri = f"ws://127.0.0.1:{self.port}/t?offset={offset}"
        async with websockets.connect(uri, max_size=None, ping_interval=None) as socket:
            end = json.loads(await socket.recv())["end_offset"]
            rows = []
            while len(rows) < end - offset:
                found = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE))
                assert found[2]["note"] == f"n{found[2]['id']}", found
                rows.append((found[0], found[2]["id"]))
            return rows

    async def live(self, seconds: float) -> list[int]:
        """Offsets of the rows that a subscriber without an offset gets within a time."""
        async with websockets.connect(f"ws://127.0.0.1:{self.port}/t", max_size=None, ping_interval=None) as socket:
            await socket.recv()
            until, offsets = time.monotonic() + seconds, []
            while (left := until - time.monotonic()) > 0:
                try:
                    offsets.append(json.loads(await asyncio.wait_for(socket.recv(), left))[0])
                except TimeoutError:
                    break
            return offsets

    def table(self) -> Path:
        return self.root / "t/t/published/t"

    def published(self) -> list[int]:
        """Offsets of the published table, as PyIceberg reads it; none before there is one."""
        return offsets_of(self.table())


def offsets_of(table, properties: dict | None = None) -> list[int]:
    from pyiceberg.io import load_file_io
    from pyiceberg.table import StaticTable

    hint = f"{table}/metadata/version-hint.text"
    source = load_file_io(properties or {}, str(table)).new_input(hint)
    if not source.exists():
        return []
    with source.open() as file:
        stem = file.read().decode().strip()
    found = StaticTable.from_metadata(f"{table}/metadata/{stem}.metadata.json", properties or {}).scan(
        selected_fields=("litelink_offset",)
    )
    return sorted(found.to_arrow().column("litelink_offset").to_pylist())
