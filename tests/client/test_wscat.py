"""Clients that know nothing of streamcast: `wscat` from npm and plain HTTP."""

import asyncio
import shutil
import subprocess
import unittest
from pathlib import Path

from broker import A, PATIENCE_S, Broker, Case, row, stream

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "node"
VERSION = "6.1.0"


def wscat() -> str:
    """The command, installed below tests/.cache on first use."""
    found = CACHE / "node_modules" / ".bin" / "wscat"
    if not found.exists():
        if not shutil.which("npm"):
            raise unittest.SkipTest("npm is not installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(CACHE), f"wscat@{VERSION}"]
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode:
            raise unittest.SkipTest("wscat cannot be installed here")
    return str(found)


class Wscat(Case):
    async def test_replays_then_follows(self):
        command = wscat()
        async with Broker(stream("trades", A)) as broker:
            for i in range(1, 4):
                await broker.publish("trades", row(i))
            process = await asyncio.create_subprocess_exec(
                command, "--no-color", "--connect", broker.uri("trades", "?offset=0"),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            try:
                text = ""

                async def until(word: str) -> None:
                    nonlocal text
                    async with asyncio.timeout(PATIENCE_S):
                        while word not in text:
                            piece = await process.stdout.read(4096)
                            self.assertTrue(piece, f"wscat ended: {text}")
                            text += piece.decode("utf-8", "replace")

                await until('"id":3')
                self.assertIn('"streamcast":4', text)
                self.assertNotIn('"id":4', text)
                await broker.publish("trades", row(4))
                await until('"id":4')
            finally:
                process.kill()
                await process.wait()


if __name__ == "__main__":
    unittest.main()
