"""A broker for a test: a release binary over a directory of its own, with any setting there is.

The conformance suite speaks to any server through an adapter. These tests are about this one, so they
start it directly; only the translation of a stream's declaration is the adapter's. To see how the Python
package fares with a test that needs no settings: BROKER_ADAPTER=tests/conformance/adapter_reference.py.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Callable

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "conformance"), str(TESTS / "crash")]
sys.dont_write_bytecode = True

from harness.core import http, stream  # noqa: E402
from harness.schemas import A  # noqa: E402
from harness.server import Adapter, Server, StartFailed, spawn  # noqa: E402
from harness.ws import Conn  # noqa: E402
from peer import Closed, Peer, Refused  # noqa: E402

__all__ = [
    "A", "PATIENCE_S", "Broker", "Case", "Closed", "Conn", "Peer", "Refused", "StartFailed", "eventually", "http", "metrics", "row", "rows", "stream",
]

#: Ends a wait that is hopeless. A machine may stand still for seconds, of a test, of the broker or of both: nothing is
#: judged by how soon it comes unless its time is promised, and then with seconds to spare.
PATIENCE_S = 60


def _adapter():
    loader = SourceFileLoader("conformance_adapter", str(TESTS / "conformance" / "adapter"))
    module = module_from_spec(spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


ADAPTER = _adapter()


async def eventually(condition: Callable, what: str):
    """Waits until a condition holds; its value."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not (value := condition()):
        assert asyncio.get_running_loop().time() < deadline, f"{what} after {PATIENCE_S} s"
        await asyncio.sleep(0.02)
    return value


class Case(unittest.IsolatedAsyncioTestCase):
    """A test with an event loop that is not in debug mode, which would cost more than what is tested."""

    async def asyncSetUp(self):
        loop = asyncio.get_running_loop()
        loop.set_debug(False)
        # Clients of killed brokers leave failed futures behind.
        loop.set_exception_handler(lambda *_: None)


class Direct(Adapter):
    """Starts the binary itself, with a configuration that holds more than FILE.json can say."""

    def __init__(self, settings: dict, args: list[str]):
        self.settings, self.args = settings, args
        self.command = [] if os.environ.get("BROKER_ADAPTER") else [str(ADAPTER.program())]


class Broker(Server):
    """`async with Broker(stream("r", A), keepalive_ping_s=1) as broker:`. Keywords are keys of streamcast.toml."""

    def __init__(self, *streams: dict, root: Path | None = None, prefix=(), args=(), **settings):
        self.home = Path(tempfile.mkdtemp(prefix="broker-"))
        adapter = Direct(settings, list(args))
        super().__init__(adapter, root or self.home / "root", {"streams": list(streams)}, list(prefix))
        self.log_path = self.home / "log"

    async def start(self, timeout: float = PATIENCE_S) -> None:
        """Start and wait until it listens."""
        config = self.home / "streamcast.toml"
        other = os.environ.get("BROKER_ADAPTER")
        if other and not self.adapter.settings:
            self.root.mkdir(parents=True, exist_ok=True)
            config.write_text(json.dumps(self.config))
            command = [sys.executable, other, "serve", "--root", self.root, "--port", self.port, "--streams", config]
        else:
            head = "".join(f"{key} = {ADAPTER.toml(value)}\n" for key, value in self.adapter.settings.items())
            config.write_text(head + ADAPTER.configuration(self.config))
            command = [*self.adapter.command, "--config", config, "--root", self.root]
            command += ["--listen", f"127.0.0.1:{self.port}", *self.adapter.args]
        command = [*self.prefix, *map(str, command)]
        self.process = spawn(command, self.log_path)
        deadline = asyncio.get_running_loop().time() + timeout
        while asyncio.get_running_loop().time() < deadline:
            if self.process.poll() is not None:
                raise StartFailed(f"exited {self.process.returncode}: {self.tail()}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            return
        self.kill()
        raise StartFailed("did not listen in time")

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(self, *_) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

    def uri(self, name: str, query: str = "") -> str:
        return f"ws://127.0.0.1:{self.port}/{name}{query}"

    async def restart(self, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            await self.stop()
        await self.start()

    # -- peers --------------------------------------------------------------

    async def attach(self, name: str, query: str = "", **how) -> tuple[Peer, dict]:
        """A connection and its greeting. Closed if there was none."""
        peer = await Peer.open(self.port, f"/{name}{query}", **how)
        return peer, json.loads(await peer.first())

    async def publish(self, name: str, *frames: str) -> list[dict]:
        """Send frames on one connection; their replies."""
        peer, _ = await self.attach(name, "?publish")
        replies: list[dict] = []
        for text in frames:
            peer.send(text.encode())
        while len(replies) < len(frames):
            replies += map(json.loads, await peer.take())
        peer.close()
        return replies

    async def log_of(self, name: str) -> list[list]:
        """Every row of the log, as `[offset, ts, row]`."""
        peer, hello = await self.attach(name, "?offset=0")
        start, end = hello["replay"]
        found: list[list] = []
        while (found[-1][0] + 1 if found else start) < end:
            found += map(json.loads, await peer.take())
        peer.close()
        return found

    async def metrics(self) -> dict[str, float]:
        return metrics((await http(self.port, "GET", "/metrics")).text)

    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


LINE = re.compile(r"^(\w+(?:\{[^}]*\})?) (\S+)$", re.MULTILINE)


def metrics(text: str) -> dict[str, float]:
    """Prometheus text as name and labels → value."""
    return {name: float(value) for name, value in LINE.findall(text)}


def row(i: int, name: str | None = None) -> str:
    return json.dumps({"id": i, "price": i + 0.5, "name": name}, separators=(",", ":"))


def rows(start: int, count: int, name: str | None = None) -> str:
    """One batch frame."""
    return "[" + ",".join(row(i, name) for i in range(start, start + count)) + "]"
