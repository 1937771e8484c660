"""Publishers and subscribers that live through one run of the broker and start over after its crash."""

import asyncio
import json
import random

from ledger import Row, Stream, Visit
from peer import Closed, Peer, Refused

ENDS = (OSError, Closed, Refused)


class Publisher:
    """A plain publisher: what was not acked when the broker died is not sent again."""

    def __init__(self, stream: Stream, who: str, seed: int, batch: int, window: int = 32):
        self.stream, self.who, self.rng = stream, who, random.Random(seed)
        self.batch, self.window = batch, window
        self.sent = 0

    def frame(self) -> tuple[bytes, int, int]:
        """The next frame: its text, its first number and its row count."""
        size, first = self.rng.randint(1, self.batch), self.sent + 1
        rows = ",".join(Row.text(self.who, first + k, first, size) for k in range(size))
        self.sent += size
        return f"[{rows}]".encode(), first, size

    async def run(self, port: int, stop: asyncio.Event) -> None:
        try:
            peer = await Peer.open(port, f"/{self.stream.name}?publish")
        except ENDS:
            return
        try:
            await peer.first()
            await self.pump(peer, stop)
        except ENDS:
            pass
        finally:
            peer.abort()

    async def pump(self, peer: Peer, stop: asyncio.Event) -> None:
        waiting: list[tuple[int, int]] = []
        while True:
            while len(waiting) < self.window and not stop.is_set():
                text, first, size = self.frame()
                peer.send(text)
                waiting.append((first, size))
            if not waiting:
                return
            await peer.drained()
            for reply in await peer.take():
                self.told(json.loads(reply), *waiting.pop(0))

    def told(self, reply: dict, first: int, size: int) -> None:
        if "ok" not in reply or len(reply["ok"]) != size:
            self.stream.blame("reply", f"{self.who}.{first}: {reply}")
            return
        for k, offset in enumerate(reply["ok"]):
            self.stream.acks.append((offset, self.who, first + k))


class ExactlyOnce(Publisher):
    """Numbered rows, sent again after a crash from a random place at or before the broker's mark."""

    def __init__(self, stream: Stream, who: str, seed: int, batch: int, window: int = 32):
        super().__init__(stream, who, seed, batch, window)
        self.acked = self.at = 0
        self.dups = 0

    async def run(self, port: int, stop: asyncio.Event) -> None:
        try:
            peer = await Peer.open(port, f"/{self.stream.name}?publish&publisher={self.who}")
        except ENDS:
            return
        try:
            mark = json.loads(await peer.first())["publisher"]["last_seq"]
            if not self.acked <= mark <= self.sent:
                self.stream.blame("mark", f"{self.who}: {mark}, acked {self.acked}, sent {self.sent}")
                return
            self.at = mark
            if self.rng.random() < 0.6:  # an outbox that had not heard of its last rows
                self.at = self.rng.randint(max(0, self.acked - 40), mark)
            await self.pump(peer, stop)
        except ENDS:
            pass
        finally:
            peer.abort()

    def frame(self) -> tuple[bytes, int, int]:
        size, first = self.rng.randint(1, self.batch), self.at + 1
        rows = ",".join(Row.text(self.who, first + k, first + k, 1) for k in range(size))
        self.at += size
        self.sent = max(self.sent, self.at)
        return f"[{first},[{rows}]]".encode(), first, size

    def told(self, reply: dict, first: int, size: int) -> None:
        offsets, dup = reply.get("ok"), reply.get("dup", 0)
        if offsets is None or len(offsets) != size or (None in offsets[dup:]):
            self.stream.blame("reply", f"{self.who}.{first}: {reply}")
            return
        self.dups += dup
        self.acked = max(self.acked, first + size - 1)
        for k, offset in enumerate(offsets):
            if offset is not None:  # a duplicate may come back without its offset
                self.stream.acks.append((offset, self.who, first + k))


class Subscriber:
    """Reads from the live end, from somewhere in the log, or on from where it was."""

    def __init__(self, stream: Stream, label: str, seed: int, *, start: str, who: str | None = None, slow: bool = False):
        self.stream, self.label, self.rng = stream, label, random.Random(seed)
        self.start, self.who, self.slow = start, who, slow
        self.last = 0

    def target(self) -> str:
        query = []
        if self.start == "back":
            query.append(f"offset={self.rng.randint(max(1, self.stream.next - 5000), self.stream.next)}")
        elif self.start == "resume":
            query.append(f"offset={self.last + 1}")
        if self.who is not None:
            query.append("where=" + json.dumps({"who": self.who}, separators=(",", ":")).replace('"', "%22"))
        return f"/{self.stream.name}?" + "&".join(query) if query else f"/{self.stream.name}"

    async def run(self, port: int, stop: asyncio.Event) -> None:
        try:
            peer = await Peer.open(port, self.target(), receive_buffer=4096 if self.slow else None)
        except ENDS:
            return
        visit = None
        try:
            hello = json.loads(await peer.first())
            visit = Visit((hello["replay"] or [hello["end_offset"]])[0], self.who, self.label)
            self.stream.visits.append(visit)
            while True:
                for payload in await peer.take():
                    offset = int(payload[1 : payload.index(b",")])
                    visit.offsets.append(offset)
                    self.stream.seen.append((offset, hash(payload)))
                    self.last = offset
                if self.slow:
                    await asyncio.sleep(self.rng.uniform(0, 0.05))
        except Closed as end:
            # 1012 is what the Python package says when it stops.
            if end.code not in (None, 1001, 1012) and not (end.code == 4429 and self.slow):
                self.stream.blame("close", f"{self.label}: {end}")
        except (OSError, Refused):
            pass
        finally:
            if visit is not None:
                visit.open = False
            peer.abort()


async def audit(stream: Stream, port: int) -> bool:
    """Read on in the log to its end and judge all claims. False if the broker died meanwhile."""
    try:
        peer = await Peer.open(port, f"/{stream.name}?offset={stream.next}")
        hello = json.loads(await peer.first())
        frontier = hello["end_offset"]
        while stream.next < frontier:
            for payload in await peer.take():
                if int(payload[1 : payload.index(b",")]) < frontier:
                    stream.append(payload)
        peer.close()
    except Closed as end:
        if end.code == 4416:
            stream.blame("missing", f"the log no longer reaches {stream.next}: {end.reason}")
            raise
        return False
    except (OSError, Refused):
        return False
    stream.settle(frontier)
    return True
