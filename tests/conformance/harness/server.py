"""Starting, stopping and killing the server under test through its adapter."""

import asyncio
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

UNSUPPORTED = 64


class Unsupported(Exception):
    """The adapter does not implement a verb (exit status 64): the case is skipped."""


class StartFailed(Exception):
    """`serve` ended, or never listened."""


class Adapter:
    def __init__(self, path: str):
        self.path = Path(path)
        self.command = [sys.executable, str(self.path)] if self.path.suffix == ".py" else [str(self.path)]

    def call(self, verb: str, *args: str, timeout: float = 120) -> str:
        """Run an offline verb; its stdout."""
        done = subprocess.run([*self.command, verb, *args], capture_output=True, text=True, timeout=timeout)
        if done.returncode == UNSUPPORTED:
            raise Unsupported(verb)
        if done.returncode != 0:
            raise VerbFailed(f"{verb} exited {done.returncode}: {done.stderr.strip()[-600:]}")
        return done.stdout

    def info(self) -> dict:
        try:
            return json.loads(self.call("info"))
        except (Unsupported, VerbFailed, ValueError):
            return {"name": self.path.name, "reference": False}


class VerbFailed(Exception):
    """An offline verb ended with an error."""


def spawn(command: list[str], log: Path) -> subprocess.Popen:
    """Start a server in a process group of its own, which does not outlive this process however it ends."""
    die_with_parent = getattr(ctypes.CDLL(None), "prctl", lambda *_: 0)
    with open(log, "ab") as out:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(1, signal.SIGKILL, 0, 0, 0),
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One `serve` process over one root. Restartable on the same root and port."""

    def __init__(self, adapter: Adapter, root: Path, config: dict, prefix: list[str] = ()):
        self.adapter, self.root, self.config = adapter, root, config
        self.prefix = list(prefix)
        self.port = free_port()
        self.process: subprocess.Popen | None = None
        self.log_path = root.parent / f"{root.name}.log"

    async def start(self, timeout: float = 60) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        path = self.root.parent / f"{self.root.name}.streams.json"
        config = {k: v for k, v in self.config.items()}
        path.write_text(json.dumps(config, indent=1))
        command = [*self.prefix, *self.adapter.command, "serve", "--root", str(self.root)]
        command += ["--port", str(self.port), "--streams", str(path)]
        if config.get("registry"):
            command.append("--registry")
        self.process = spawn(command, self.log_path)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                if self.process.returncode == UNSUPPORTED:
                    raise Unsupported("serve with these options")
                raise StartFailed(f"serve exited {self.process.returncode}: {self.tail()}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.03)
                continue
            writer.close()
            return
        self.kill()
        raise StartFailed("serve did not listen in time")

    def tail(self) -> str:
        try:
            return self.log_path.read_text(errors="replace").strip()[-400:]
        except OSError:
            return ""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def stop(self, timeout: float = 40) -> int:
        """SIGTERM and wait; the exit status."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout
        while self.alive and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self.alive:
            self.kill()
            return -9
        return self.process.returncode

    def kill(self) -> None:
        """SIGKILL the process group this runner started (server and its children)."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def kill_main(self) -> None:
        """SIGKILL the server process alone, as the OOM killer would."""
        if self.alive:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
