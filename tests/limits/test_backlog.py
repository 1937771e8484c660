"""What a subscriber may be behind: `max_backlog` frames, `max_backlog_bytes`, and the policy `slow` (wire.md section 8)."""

import asyncio
import json
import time
import unittest

from broker import A, PATIENCE_S, Broker, Case, Closed, row, rows, stream

TINY = 4096  # bytes of receive buffer: a peer that does not read blocks the broker's socket soon
WIDE = "x" * 2000


async def drain(peer, last: int | None = None) -> tuple[list[int], Closed | None]:
    """Offsets of everything that still comes until the close. With `last`, until that one and what comes soon after it."""
    offsets: list[int] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while last is None or not offsets or offsets[-1] < last:
                offsets += [json.loads(payload)[0] for payload in await peer.take()]
        async with asyncio.timeout(0.5):
            while True:
                offsets += [json.loads(payload)[0] for payload in await peer.take()]
    except Closed as end:
        return offsets, end
    except TimeoutError:
        return offsets, None


class Stalled:
    """A subscriber that does not read from its socket until it is told to."""

    @classmethod
    async def open(cls, broker: Broker, target: str):
        peer, hello = await broker.attach(target, receive_buffer=TINY)
        peer.transport.pause_reading()
        return peer, hello

    @staticmethod
    def wake(peer) -> None:
        peer.transport.resume_reading()


class Backlog(Case):
    async def fill(self, broker: Broker, name: str, frames: int, batch: int = 50) -> int:
        """Publish until well past what kernel buffers hold."""
        replies = await broker.publish(name, *(rows(i * batch, batch, WIDE) for i in range(frames)))
        self.assertTrue(all("ok" in reply for reply in replies), replies[:1])
        return frames * batch

    async def test_stalled_subscriber_gets_a_prefix_and_4429(self):
        async with Broker(stream("r", A, max_backlog=64)) as broker:
            stalled, _ = await Stalled.open(broker, "r")
            quick, _ = await broker.attach("r")
            # One batch at a time, so that a subscriber that reads is never more than one behind.
            publisher, _ = await broker.attach("r", "?publish")
            total, seen = 0, []
            for i in range(160):
                publisher.send(rows(i * 50, 50, WIDE).encode())
                self.assertIn("ok", json.loads(await publisher.first()))
                total += 50
                while len(seen) < total:
                    seen += [json.loads(payload)[0] for payload in await asyncio.wait_for(quick.take(), PATIENCE_S)]
            self.assertEqual(seen, list(range(1, total + 1)), "a subscriber that reads was disturbed")
            Stalled.wake(stalled)
            offsets, end = await drain(stalled)
            self.assertEqual(offsets, list(range(1, len(offsets) + 1)), "not a contiguous prefix")
            self.assertLess(len(offsets), total)
            self.assertEqual((end.code, json.loads(end.reason)), (4429, {"error": "too_slow", "backlog": 64}))
            counts = await broker.metrics()
            dropped = sum(v for k, v in counts.items() if k.startswith("streamcast_connections_closed") and "too_slow" in k)
            self.assertEqual(dropped, 1)

    async def test_one_batch_beyond_the_backlog_drops_nobody_that_reads(self):
        async with Broker(stream("r", A, max_backlog=4)) as broker:
            peer, _ = await broker.attach("r")
            await broker.publish("r", rows(0, 500))
            offsets, end = await drain(peer, 500)
            self.assertEqual((offsets, end), (list(range(1, 501)), None))

    async def test_rows_that_do_not_match_are_no_backlog(self):
        async with Broker(stream("r", A, max_backlog=4)) as broker:
            peer, _ = await Stalled.open(broker, "r?where=%7B%22name%22:%22y%22%7D")
            await self.fill(broker, "r", 100)
            await broker.publish("r", row(1, "y"))
            Stalled.wake(peer)
            offsets, end = await drain(peer, 5001)
            self.assertEqual((offsets, end), ([5001], None))

    async def test_bytes_are_bounded_too(self):
        """Large rows stay below max_backlog frames and would fill the memory."""
        async with Broker(stream("r", A), max_backlog_bytes=4 << 20) as broker:
            before = broker.resident_bytes()
            stalled, _ = await Stalled.open(broker, "r")
            replies = await broker.publish("r", *(row(i, "x" * 500_000) for i in range(100)))
            self.assertTrue(all("ok" in reply for reply in replies))
            self.assertLess(broker.resident_bytes() - before, 100 << 20)
            Stalled.wake(stalled)
            offsets, end = await drain(stalled)
            self.assertEqual(offsets, list(range(1, len(offsets) + 1)))
            self.assertEqual(end.code, 4429)

    async def test_a_replay_that_outlasts_the_backlog_goes_on_from_the_log(self):
        """A reader that takes its time and never stops: what comes live meanwhile is far more than its backlog."""
        stood_s = []
        for _ in range(5):
            try:
                return await self.outlast(stood_s)
            except Closed:
                # Nor may the machine: a reader that takes nothing for two seconds has stopped.
                if stood_s.pop() < 1:
                    raise
        self.fail("the machine stands still all the time")

    async def outlast(self, stood_s: list[float]) -> None:
        """Puts down for how long nothing was read at most."""
        async with Broker(stream("r", A, max_backlog=16, max_replay=None)) as broker:
            before = await self.fill(broker, "r", 150)
            peer, hello = await Stalled.open(broker, "r?offset=1")
            self.assertEqual(hello["replay"], [1, before + 1])
            offsets: list[int] = []
            stood_s.append(0)
            read = time.monotonic()

            async def trickle(count: int, pause: float) -> None:
                nonlocal read
                while len(offsets) < count:
                    Stalled.wake(peer)
                    try:
                        offsets.extend(json.loads(payload)[0] for payload in await asyncio.wait_for(peer.take(), PATIENCE_S))
                    finally:
                        stood_s[-1], read = max(stood_s[-1], time.monotonic() - read), time.monotonic()
                    peer.transport.pause_reading()
                    await asyncio.sleep(pause)

            async with asyncio.timeout(4 * PATIENCE_S):
                began = time.monotonic()
                while time.monotonic() - began < 1.5:
                    await trickle(len(offsets) + 1, 0.02)
                live = asyncio.create_task(self.fill(broker, "r", 100))
                while not live.done():
                    await trickle(len(offsets) + 1, 0.01)
                self.assertLess(len(offsets), before, "the replay was over too soon to show anything")
                counts = await broker.metrics()
                self.assertGreater(sum(v for k, v in counts.items() if k.startswith("streamcast_demoted_subscribers_total")), 0)
                total = before + await live
                await trickle(total, 0)
            self.assertEqual(offsets, list(range(1, total + 1)))

    async def test_a_replay_that_stands_still_is_bound_by_the_backlog_however_old_it_is(self):
        async with Broker(stream("r", A, max_backlog=16, max_replay=None)) as broker:
            before = await self.fill(broker, "r", 150)
            peer, _ = await Stalled.open(broker, "r?offset=1")
            await asyncio.sleep(3)
            await broker.publish("r", *(row(i) for i in range(40)))
            Stalled.wake(peer)
            offsets, end = await drain(peer)
            self.assertEqual(offsets, list(range(1, len(offsets) + 1)))
            self.assertTrue(before + 16 <= len(offsets) < before + 40, len(offsets))
            self.assertEqual((end.code, json.loads(end.reason)), (4429, {"error": "too_slow", "backlog": 16}))

    async def test_slow_replay_serves_a_stalled_subscriber_from_the_log(self):
        async with Broker(stream("r", A, max_backlog=16, max_replay=None, slow="replay")) as broker:
            peer, _ = await Stalled.open(broker, "r")
            filtered, _ = await Stalled.open(broker, "r?where=%7B%22name%22:%22y%22%7D")
            total = await self.fill(broker, "r", 200)
            last = await broker.publish("r", *(row(i, "y") for i in range(40)))
            for waiting, want in ((peer, range(1, total + 41)), (filtered, range(total + 1, total + 41))):
                Stalled.wake(waiting)
                offsets, end = await drain(waiting, want[-1])
                self.assertEqual((offsets, end), (list(want), None))
            # Back on the feed: what comes now comes live.
            (reply,) = await broker.publish("r", row(1, "y"))
            for waiting in (peer, filtered):
                offsets, end = await drain(waiting, reply["ok"][0])
                self.assertEqual((offsets, end), ([last[-1]["ok"][0] + 1], None))

    async def test_who_is_alone_in_the_log_for_long_comes_back_to_the_feed(self):
        """Nobody is in the feed meanwhile, for longer than a shard gets the rows of a stream that nobody follows."""
        async with Broker(stream("r", A, max_backlog=16, max_replay=None, slow="replay")) as broker:
            peer, _ = await Stalled.open(broker, "r")
            await self.fill(broker, "r", 150)
            await asyncio.sleep(8)
            await self.fill(broker, "r", 2)
            Stalled.wake(peer)
            for total in (7600, 7650):
                offsets, end = await drain(peer, total)
                self.assertEqual((offsets[-1:], end), ([total], None))
                await self.fill(broker, "r", 1)

    async def test_slow_replay_keeps_memory_flat(self):
        async with Broker(stream("r", A, max_backlog=16, max_replay=None, slow="replay"), max_backlog_bytes=4 << 20) as broker:
            peers = [(await Stalled.open(broker, "r"))[0] for _ in range(20)]
            await self.fill(broker, "r", 100)
            early = broker.resident_bytes()
            await self.fill(broker, "r", 600)
            self.assertLess(broker.resident_bytes() - early, 48 << 20)
            Stalled.wake(peers[0])
            offsets, end = await drain(peers[0], 35_000)
            self.assertEqual((offsets, end), (list(range(1, 35_001)), None))


if __name__ == "__main__":
    unittest.main()
