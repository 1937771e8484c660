"""The walk through every call in docs/batches.md, as it is written there, with the broker of the README's quick start."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from broker import ADAPTER, Case

REPOSITORY = Path(__file__).resolve().parents[2]
#: A network of its own: the walk is about the port that the broker takes when nobody says otherwise.
ALONE = ["unshare", "--map-root-user", "--net"]

#: Runs beside the broker: the loopback is brought up, then one block after the other.
DRIVER = """
import fcntl, os, socket, struct, subprocess, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh14x", b"lo", 1))
broker = subprocess.Popen(["streamcast-uring"], stdout=open("broker.log", "w"), stderr=subprocess.STDOUT)
try:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", 8765)).close()
            break
        except OSError:
            assert broker.poll() is None, open("broker.log").read()
            time.sleep(0.05)
    sys.exit(subprocess.run(["bash", "walk.sh"]).returncode)
finally:
    broker.terminate()
    broker.wait()
"""
SEPARATOR = "== the next block =="


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def walk() -> list[tuple[str, str, str]]:
    """The blocks of the walk with what they print: language, text, output."""
    section = (REPOSITORY / "docs" / "batches.md").read_text().split("## A walk through every call\n")[1].split("\n## ")[0]
    return re.findall(r"^```(bash|python)\n(.*?)^```\n+```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def shape(text: str) -> str:
    """What is the same in every run: ids, cursors and times are told by their kind alone."""
    text = re.sub(r"\b(str|cur|ent)_[\w…-]+", r"\1", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "uuid", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "time", text)
    text = re.sub(r'"ts":\d+', '"ts"', text)
    text = re.sub(r'"purgedAt":(null|"time")', '"purgedAt"', text)
    return re.sub(r"\s+", "", text)


def run(directory: Path, parts: list[tuple[str, str, str]]) -> list[str]:
    """Runs the blocks in `directory`; what each of them prints."""
    (directory / "streamcast.toml").write_text(blocks((REPOSITORY / "README.md").read_text().split("## Quick start\n")[1], "toml")[0])
    tools = directory / "tools"
    tools.mkdir()
    (tools / "streamcast-uring").symlink_to(ADAPTER.program().resolve())
    (tools / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tools / "python").chmod(0o755)
    script = ["set -euo pipefail"]
    for number, (language, text, _) in enumerate(parts):
        (directory / f"block{number}.py").write_text(text)
        script += [text if language == "bash" else f"python block{number}.py", f"echo; echo '{SEPARATOR}'"]
    (directory / "walk.sh").write_text("\n".join(script))
    env = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = subprocess.run([*ALONE, sys.executable, "-c", DRIVER], cwd=directory, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr + (directory / "broker.log").read_text()
    return done.stdout.split(SEPARATOR)[: len(parts)]


def alone() -> bool:
    try:
        return subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@unittest.skipUnless(shutil.which("curl") and alone(), "needs curl, and a network of its own")
class Walk(Case):
    async def test_it_goes_as_it_is_told(self):
        parts = walk()
        directory = Path(tempfile.mkdtemp(prefix="walk-"))
        try:
            printed = await asyncio.to_thread(run, directory, parts)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        for (_, text, told), found in zip(parts, printed):
            with self.subTest(block=text):
                self.assertEqual(shape(found), shape(told))

    async def test_every_call_is_in_it(self):
        text = "".join(text for _, text, _ in walk())
        for call in [
            r"curl -s \$S -d", r"curl -s \$S/events/entries -d", r'curl -s "\$S\?', r"curl -s \$S/events *#", r"entries\?limit=", r"wait=",
            r"where=", "text/event-stream", "last-event-id", "x-ndjson", "vnd.apache.arrow.stream", r"/erasures -d", r"/erasures *#", "-X PATCH",
            "-X DELETE", r"streamcast\.connect",
        ]:
            self.assertRegex(text, call)
