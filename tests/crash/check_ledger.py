#!/usr/bin/env python3
"""Does the judge of the crash test notice what it is there for? Each violation is played to it once."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

from ledger import Row, Stream, Visit  # noqa: E402


def frame(offset: int, who: str, n: int, first: int | None = None, size: int = 1) -> bytes:
    return f"[{offset},1700000000000000,{Row.text(who, n, first or n, size)}]".encode()


def stream(*rows, exactly_once: bool = False) -> Stream:
    """A log of (who, number[, first, size]) rows at offsets 1, 2, …"""
    log = Stream("s", exactly_once)
    for offset, row in enumerate(rows, 1):
        log.append(frame(offset, *row))
    return log


class Judge(unittest.TestCase):
    def blamed(self, log: Stream, kind: str | None) -> None:
        log.settle(log.next)
        self.assertEqual(list(log.wrong), [kind] if kind else [], log.examples)

    def test_a_sound_log_is_left_alone(self):
        log = stream(("a", 1), ("b", 1), ("a", 2, 2, 2), ("a", 3, 2, 2), ("b", 4))
        log.acks = [(1, "a", 1), (4, "a", 3)]
        log.seen = [(2, hash(frame(2, "b", 1)))]
        for who, offsets in ((None, [2, 3, 4]), ("a", [3, 4])):
            visit = Visit(2, who, "reader")
            visit.offsets.extend(offsets)
            log.visits.append(visit)
        self.blamed(log, None)

    def test_an_acked_row_that_is_gone(self):
        log = stream(("a", 1))
        log.acks = [(2, "a", 2)]
        self.blamed(log, "lost")

    def test_an_ack_with_the_offset_of_another_row(self):
        log = stream(("a", 1), ("b", 1))
        log.acks = [(2, "a", 1)]
        self.blamed(log, "lost")

    def test_a_hole_in_an_exactly_once_sequence(self):
        self.blamed(stream(("a", 1), ("a", 3), exactly_once=True), "lost")

    def test_a_row_twice(self):
        self.blamed(stream(("a", 1), ("a", 2), ("a", 1)), "duplicated")

    def test_rows_out_of_order(self):
        self.blamed(stream(("a", 2), ("a", 1)), "reordered")

    def test_a_frame_cut_at_its_end(self):
        self.blamed(stream(("a", 1, 1, 3), ("a", 2, 1, 3), ("b", 1)), "torn")

    def test_a_frame_cut_at_its_start(self):
        self.blamed(stream(("a", 2, 1, 3), ("a", 3, 1, 3)), "torn")

    def test_an_offset_given_out_again(self):
        log = stream(("a", 1))
        log.seen = [(1, hash(frame(1, "b", 1)))]
        self.blamed(log, "reused")

    def test_a_seen_row_that_is_gone(self):
        log = stream(("a", 1))
        log.seen = [(2, hash(frame(2, "a", 2)))]
        self.blamed(log, "missing")

    def test_a_subscriber_that_missed_one(self):
        for who, offsets, kind in ((None, [1, 3], "missing"), (None, [1, 3, 2], "reordered"), ("a", [1], None), ("a", [3], "missing")):
            with self.subTest(offsets=offsets):
                log = stream(("a", 1), ("b", 1), ("a", 2))
                visit = Visit(1, who, "reader")
                visit.offsets.extend(offsets)
                log.visits = [visit]
                self.blamed(log, kind)


if __name__ == "__main__":
    unittest.main()
