"""What publishers may have under way: `max_inbound`, `max_inbound_bytes`, `max_in_flight`, `max_message_bytes` and the
transport's ceiling (wire.md sections 4.2, 4.5, 4.6)."""

import asyncio
import contextlib
import json
import unittest

from broker import A, PATIENCE_S, Broker, Case, Closed, Conn, row, rows, stream


class Inbound(Case):
    async def flood(self, broker: Broker, name: str, publishers: int, frames: int, batch: int) -> list[int]:
        """Everybody sends at once, without waiting; all offsets given out."""
        texts = [rows(0, batch)] * frames
        replies = await asyncio.gather(*(broker.publish(name, *texts) for _ in range(publishers)))
        self.assertTrue(all("ok" in reply for answers in replies for reply in answers))
        return [offset for answers in replies for reply in answers for offset in reply["ok"]]

    async def test_max_inbound_throttles_and_refuses_nothing(self):
        async with Broker(stream("r", A, max_inbound=20)) as broker:
            offsets = await self.flood(broker, "r", publishers=6, frames=200, batch=5)
            self.assertEqual(sorted(offsets), list(range(1, 6001)))

    async def test_a_batch_beyond_max_inbound_enters_alone(self):
        async with Broker(stream("r", A, max_inbound=20)) as broker:
            offsets = await self.flood(broker, "r", publishers=3, frames=10, batch=100)
            self.assertEqual(sorted(offsets), list(range(1, 3001)))

    async def test_max_inbound_bytes_throttles_and_refuses_nothing(self):
        async with Broker(stream("r", A), stream("s", A), max_inbound_bytes=1 << 20) as broker:
            before = broker.resident_bytes()
            wide = [row(i, "x" * 200_000) for i in range(50)]
            answers = await asyncio.gather(*(broker.publish(name, *wide) for name in "rsrs"))
            self.assertTrue(all("ok" in reply for replies in answers for reply in replies))
            self.assertLess(broker.resident_bytes() - before, 96 << 20)

    async def test_max_in_flight_stops_reading_a_publisher_that_does_not(self):
        async with Broker(stream("r", A, max_in_flight=4)) as broker:
            deaf, _ = await broker.attach("r", "?publish", receive_buffer=4096)
            deaf.transport.pause_reading()
            text, sent = rows(0, 50, "x" * 100).encode(), 0

            async def blocked() -> bool:
                """Nothing more goes out for a while, in the middle of which the broker answers somebody else."""
                for _ in range(2):
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(deaf.drained(), 1)
                    if deaf.writable.is_set():
                        return False
                    await broker.metrics()
                return True

            async with asyncio.timeout(4 * PATIENCE_S):
                while not await blocked():
                    deaf.send(text)
                    sent += 1
            taken = (await broker.metrics())['streamcast_stream_rows_total{stream="r"}'] / 50
            self.assertLess(taken, sent, "the broker went on reading")
            await asyncio.wait_for(broker.publish("r", row(1)), PATIENCE_S)
            deaf.transport.resume_reading()
            replies = 0
            while replies < sent:
                replies += len(await asyncio.wait_for(deaf.take(), PATIENCE_S))
            self.assertEqual(replies, sent)

    async def test_max_message_bytes(self):
        """A8: exactly at the limit is a frame, one beyond it is 1009 behind the replies owed."""
        async with Broker(stream("r", A, max_message_bytes=200)) as broker:
            peer, _ = await broker.attach("r", "?publish")
            fits = row(1, "x" * (200 - len(row(1, ""))))
            self.assertEqual(len(fits), 200)
            for _ in range(3):
                peer.send(fits.encode())
            peer.send(row(1, "x" * (208 - len(row(1, "")))).encode())
            replies, end = [], None
            try:
                while True:
                    replies += map(json.loads, await asyncio.wait_for(peer.take(), PATIENCE_S))
            except Closed as closed:
                end = closed
            self.assertEqual([reply["ok"] for reply in replies], [[1], [2], [3]])
            want = {"error": "too_big", "size": 208, "limit": 200, "stream": "r"}
            self.assertEqual((end.code, json.loads(end.reason)), (1009, want))
            self.assertEqual(len(await broker.log_of("r")), 3)

    async def test_the_ceiling_counts_a_message_and_not_its_fragments(self):
        async with Broker(stream("r", A), transport_max_bytes=4096) as broker:
            for query in ("?publish", ""):
                peer = await Conn.open(broker.port, f"/r{query}")
                await peer.recv()
                peer.send_frame(1, b'{"id":1,', fin=False)
                for _ in range(20):
                    peer.send_frame(0, b" " * 250, fin=False)
                event = await peer.recv()
                self.assertEqual((event.kind, event.code), ("close", 1009), query)

    async def test_an_announced_length_reserves_nothing(self):
        async with Broker(stream("r", A)) as broker:
            before = broker.resident_bytes()
            peers = []
            for _ in range(50):
                peer = await Conn.open(broker.port, "/r?publish")
                await peer.recv()
                peer.writer.write(bytes([0x81, 0xFF]) + (1 << 20).to_bytes(8, "big") + b"abcd")
                peers.append(peer)
            await broker.publish("r", row(1))
            self.assertLess(broker.resident_bytes() - before, 24 << 20)

    async def test_control_frames_are_short_and_whole(self):
        async with Broker(stream("r", A)) as broker:
            for what in (dict(opcode=9, payload=b"x" * 126), dict(opcode=9, payload=b"x", fin=False)):
                peer = await Conn.open(broker.port, "/r?publish")
                await peer.recv()
                peer.send_frame(**what)
                event = await peer.recv()
                self.assertTrue(event.kind == "eof" or (event.kind, event.code) == ("close", 1002), event)


if __name__ == "__main__":
    unittest.main()
