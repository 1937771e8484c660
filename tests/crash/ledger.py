"""What publishers were told and subscribers saw, held against what the log says after each crash."""

import json
from array import array
from collections import Counter


class Row:
    """A row's identity: which publisher, and its number there. Its content follows from both."""

    @staticmethod
    def text(who: str, n: int, first: int, size: int) -> str:
        """One row of a frame that starts at number `first` and has `size` rows."""
        pad = "x" * (n * 7 % 60)
        return f'{{"who":"{who}","n":{n},"first":{first},"size":{size},"pad":"{pad}"}}'


class Stream:
    """One stream's log as audited so far, and the claims that still wait for the next audit.

    A claim is a promise the broker made by sending something: an ack, or a row to a subscriber.
    After a crash every claim must be found in the log, byte for byte.
    """

    def __init__(self, name: str, exactly_once: bool):
        self.name, self.exactly_once = name, exactly_once
        self.digests = array("q")  # of the frame at offset index + 1
        self.who: list[str] = []
        self.numbers = array("q")
        self.highest: dict[str, int] = {}  # highest number in the log, by publisher
        self.acks: list[tuple[int, str, int]] = []
        self.seen: list[tuple[int, int]] = []
        self.visits: list["Visit"] = []
        self.wrong: Counter = Counter()
        self.examples: list[str] = []
        self.acked = self.shown = 0

    @property
    def next(self) -> int:
        """The first offset not audited."""
        return len(self.digests) + 1

    def blame(self, kind: str, text: str) -> None:
        self.wrong[kind] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {self.name}: {text}")

    def append(self, payload: bytes) -> None:
        """One audited row, read back in offset order."""
        offset, _, row = json.loads(payload)
        if offset != self.next:
            self.blame("offsets not dense", f"{offset} after {self.next - 1}")
            return
        who, n, first, size = row["who"], row["n"], row["first"], row["size"]
        last = self.highest.get(who, 0)
        if n == last or (n < last and self._in_log(who, n)):
            self.blame("duplicated", f"{who}.{n} again at {offset}")
        elif n < last:
            self.blame("reordered", f"{who}.{n} at {offset}, after {who}.{last}")
        elif self.exactly_once and n != last + 1:
            self.blame("lost", f"{who}.{n} follows {who}.{last} at {offset}")
        elif not self.exactly_once and n > first and last != n - 1:
            self.blame("torn", f"{who}.{n} at {offset} without the rest of its frame from {first}")
        torn = self._unfinished(who, n)
        if torn:
            self.blame("torn", f"the frame before {offset} ends at {torn}")
        self.open = (who, n, first + size - 1)
        self.highest[who] = max(last, n)
        self.digests.append(hash(payload))
        self.who.append(who)
        self.numbers.append(n)

    open: tuple[str, int, int] = ("", 0, 0)

    def _unfinished(self, who: str, n: int) -> str | None:
        """The last row of the log so far if its frame should have gone on with another one."""
        before, number, end = self.open
        if self.exactly_once or number == end or (who, n) == (before, number + 1):
            return None
        return f"{before}.{number} of {end}"

    def _in_log(self, who: str, n: int) -> bool:
        return any(number == n and name == who for name, number in zip(self.who, self.numbers))

    def settle(self, frontier: int) -> None:
        """Judge every claim: the log is audited up to `frontier` and nothing is in flight."""
        for offset, who, n in self.acks:
            if offset >= frontier or (self.who[offset - 1], self.numbers[offset - 1]) != (who, n):
                self.blame("lost", f"{who}.{n} was acked at {offset}: {self._at(offset)}")
        for offset, digest in self.seen:
            if offset >= frontier:
                self.blame("missing", f"a subscriber saw offset {offset}, the log ends at {frontier}")
            elif self.digests[offset - 1] != digest:
                self.blame("reused", f"offset {offset} is {self._at(offset)}, a subscriber saw something else")
        for visit in self.visits:
            visit.judge(self)
        self.acked += len(self.acks)
        self.shown += len(self.seen)
        self.acks, self.seen, self.visits = [], [], [visit for visit in self.visits if visit.open]

    def _at(self, offset: int) -> str:
        return f"{self.who[offset - 1]}.{self.numbers[offset - 1]}" if offset < self.next else "not in the log"


class Visit:
    """One subscriber's connection: from where it was promised rows, and which offsets it got."""

    def __init__(self, start: int, who: str | None, label: str):
        self.start, self.who, self.label = start, who, label
        self.offsets = array("q")
        self.open = True

    def judge(self, stream: Stream) -> None:
        """A contiguous prefix of what it asked for: no hole, none twice, none out of order."""
        if not self.offsets:
            return
        last = self.offsets[-1]
        if self.who is None:
            want = range(self.start, last + 1)
        else:
            want = (o for o in range(self.start, min(last + 1, stream.next)) if stream.who[o - 1] == self.who)
        want = array("q", want)
        if want != self.offsets:
            at = next((i for i, (a, b) in enumerate(zip(want, self.offsets)) if a != b), min(len(want), len(self.offsets)))
            got = list(self.offsets[at : at + 3])
            kind = "reordered" if list(self.offsets) != sorted(set(self.offsets)) else "missing"
            stream.blame(kind, f"{self.label} from {self.start}: expected {list(want[at : at + 3])}, got {got}")
        self.start = last + 1
        self.offsets = array("q")
