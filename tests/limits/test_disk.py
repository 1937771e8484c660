"""A full disk: `commit_failed`, nothing lost, nothing half, and back to work when there is room (wire.md section 4.3)."""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from broker import A, PATIENCE_S, Broker, Case, StartFailed, rows, stream


@contextlib.contextmanager
def small_disk(mebibytes: int):
    """A directory on an ext4 filesystem of its own (a tmpfs where there are no loop devices). Needs root."""
    home = Path(tempfile.mkdtemp(prefix="disk-"))
    image, mounted = home / "image", home / "mounted"
    mounted.mkdir()
    image.write_bytes(b"")
    os.truncate(image, mebibytes << 20)
    ways = (
        [["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(mounted)]],
        [["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", str(mounted)]],
    )
    for commands in ways:
        if all(shutil.which(c[0]) and subprocess.run(c, capture_output=True).returncode == 0 for c in commands):
            break
    else:
        shutil.rmtree(home)
        raise unittest.SkipTest("no filesystem can be mounted here (root is needed)")
    try:
        yield mounted
    finally:
        for _ in range(50):
            if subprocess.run(["umount", str(mounted)], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", str(mounted)], check=True)
        shutil.rmtree(home)


def fill(disk: Path, leave: int) -> Path:
    """A file that takes all free space but `leave` bytes."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    with open(ballast, "wb") as out:
        remaining = room.f_bavail * room.f_frsize - leave
        with contextlib.suppress(OSError):
            while remaining > 0:
                remaining -= out.write(b"\0" * min(remaining, 65_536))
                out.flush()
    assert ballast.stat().st_size > 4 << 20, "nothing to free later"
    return ballast


class Full(Case):
    # Nobody is dropped here for reading slowly.
    STREAMS = (stream("r", A, max_replay=None, max_backlog=1_000_000), stream("x", A, max_replay=None, exactly_once=True))

    async def until_failed(self, broker: Broker, query: str, name: str) -> tuple[list[int], int]:
        """Publish until a commit fails; the offsets acked, and the first sequence number that was not."""
        peer, hello = await broker.attach(name, query)
        acked, seq = [], (hello.get("publisher") or {"last_seq": 0})["last_seq"] + 1
        for _ in range(4000):
            batch = rows(seq, 100, "x" * 200)
            peer.send((f"[{seq},{batch}]" if "publisher" in query else batch).encode())
            reply = json.loads(await asyncio.wait_for(peer.first(), PATIENCE_S))
            if "ok" not in reply:
                self.assertEqual(reply["error"], "commit_failed")
                peer.close()
                return acked, seq
            acked += reply["ok"]
            seq += 100
        self.fail("the disk never filled")

    async def check(self, broker: Broker, name: str, acked: list[int]) -> None:
        log = await broker.log_of(name)
        self.assertEqual([offset for offset, _, _ in log], list(range(1, len(log) + 1)))
        self.assertEqual(len(log), len(acked), "more or fewer rows than were acked")

    async def test_commits_fail_and_recover(self):
        with small_disk(64) as disk:
            async with Broker(*self.STREAMS, root=disk / "root") as broker:
                watcher, _ = await broker.attach("r")
                await broker.publish("r", rows(0, 100))
                ballast = fill(disk, leave=1 << 20)
                acked, _ = await self.until_failed(broker, "?publish", "r")
                marked, failed = await self.until_failed(broker, "?publish&publisher=p", "x")
                acked = [*range(1, 101), *acked]
                # It still serves, and what was acked is all there is.
                await self.check(broker, "r", acked)
                await self.check(broker, "x", marked)
                _, hello = await broker.attach("x", "?publish&publisher=p")
                self.assertEqual(hello["publisher"]["last_seq"], failed - 1, "the mark moved without its rows")
                # Room again: no restart is needed, and the sequence goes on where it stopped.
                ballast.unlink()
                peer, _ = await broker.attach("x", "?publish&publisher=p")
                for _ in range(300):
                    peer.send(f"[{failed},{rows(failed, 10)}]".encode())
                    reply = json.loads(await asyncio.wait_for(peer.first(), PATIENCE_S))
                    if "ok" in reply:
                        break
                    self.assertEqual(reply["error"], "commit_failed")
                    await asyncio.sleep(0.1)
                self.assertEqual(reply.get("ok"), list(range(len(marked) + 1, len(marked) + 11)), reply)
                marked += reply["ok"]
                for _ in range(300):
                    reply = (await broker.publish("r", rows(0, 100)))[0]
                    if "ok" in reply:
                        break
                    await asyncio.sleep(0.1)
                self.assertIn("ok", reply)
                acked += reply["ok"]
                seen: list[int] = []
                while len(seen) < len(acked):
                    seen += [json.loads(payload)[0] for payload in await asyncio.wait_for(watcher.take(), PATIENCE_S)]
                self.assertEqual(seen, acked, "a subscriber saw something else than was acked")
                await broker.restart(kill=True)
                await self.check(broker, "r", acked)
                await self.check(broker, "x", marked)

    async def test_killed_with_a_full_disk(self):
        """kill -9 with no room left: the next start serves what was acked, or says that there is no room."""
        with small_disk(64) as disk:
            async with Broker(*self.STREAMS, root=disk / "root") as broker:
                await broker.publish("r", rows(0, 100))
                ballast = fill(disk, leave=1 << 20)
                acked, _ = await self.until_failed(broker, "?publish", "r")
                acked = [*range(1, 101), *acked]
                broker.kill()
                try:
                    await broker.start()
                    await self.check(broker, "r", acked)
                    broker.kill()
                except StartFailed as refusal:
                    self.assertRegex(str(refusal), r"(?i)full|space|disk")
                ballast.unlink()
                await broker.start()
                await self.check(broker, "r", acked)
                self.assertIn("ok", (await broker.publish("r", rows(0, 10)))[0])

    async def test_no_ack_and_no_row_for_what_failed(self):
        """Frames pipelined into a full disk: each gets one reply, and only committed rows are seen."""
        with small_disk(64) as disk:
            async with Broker(*self.STREAMS, root=disk / "root") as broker:
                watcher, _ = await broker.attach("r")
                fill(disk, leave=512 << 10)
                # More than the whole disk holds, so that a log that has its space already is filled, too.
                replies = await broker.publish("r", *(rows(i * 100, 100, "x" * 200) for i in range(3000)))
                self.assertEqual(len(replies), 3000)
                acked = [offset for reply in replies if "ok" in reply for offset in reply["ok"]]
                self.assertEqual({reply.get("error") for reply in replies} - {None}, {"commit_failed"})
                self.assertEqual(acked, list(range(1, len(acked) + 1)), "a failed frame took an offset")
                seen: list[int] = []
                while len(seen) < len(acked):
                    seen += [json.loads(payload)[0] for payload in await asyncio.wait_for(watcher.take(), PATIENCE_S)]
                with contextlib.suppress(TimeoutError):
                    seen += [json.loads(payload)[0] for payload in await asyncio.wait_for(watcher.take(), 1)]
                self.assertEqual(seen, acked)
                await self.check(broker, "r", acked)


if __name__ == "__main__":
    unittest.main()
