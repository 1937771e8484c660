"""How many connections there may be, and how long one may take to say what it wants or to prove that it lives."""

import asyncio
import contextlib
import json
import time
import unittest

from broker import A, PATIENCE_S, Broker, Case, Closed, Conn, Peer, Refused, eventually, http, row, stream


async def ends(reader, within: float) -> tuple[bytes, float]:
    """What a socket says until it ends, and after how many seconds."""
    began = time.monotonic()
    said = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(within):
            while data := await reader.read(65_536):
                said += data
    return said, time.monotonic() - began


class Connections(Case):
    async def test_max_connections(self):
        """One more is not served; it never gets half an answer; and a place that becomes free is used."""
        async with Broker(stream("r", A), max_connections=20) as broker:
            held = [(await broker.attach("r"))[0] for _ in range(20)]
            late = asyncio.create_task(broker.attach("r"))
            with contextlib.suppress(Closed, Refused, OSError, TimeoutError):
                await asyncio.wait_for(asyncio.shield(late), 1)
                self.fail("a connection beyond max_connections was greeted")
            for peer in held:
                peer.close()
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await (late if not late.done() else broker.attach("r"))
                        break
                    except (Closed, Refused, OSError):
                        await asyncio.sleep(0.05)

    async def test_descriptors_are_given_back(self):
        async with Broker(stream("r", A)) as broker:
            await broker.publish("r", row(1))
            before = broker.open_files()
            for _ in range(5):
                peers = await asyncio.gather(*(Peer.open(broker.port, "/r?offset=0") for _ in range(50)))
                for peer in peers[:25]:
                    peer.close()
                for peer in peers[25:]:
                    peer.abort()
                for target in ("/nope", "/stats", "/"):
                    with contextlib.suppress(Closed, Refused):
                        await Peer.open(broker.port, target)
                await http(broker.port, "GET", "/stats")
            await eventually(lambda: broker.open_files() <= before + 2, "descriptors are still open")

    async def test_silence_before_the_request_ends(self):
        """Nothing at all, half a head, and a head that drips: none may stay for ever."""
        async with Broker(stream("r", A)) as broker:

            async def silent(first: bytes, drip: bytes):
                reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
                writer.write(first)

                async def drops():
                    with contextlib.suppress(ConnectionError):
                        while drip:
                            await asyncio.sleep(0.5)
                            writer.write(drip)
                            await writer.drain()

                task = asyncio.create_task(drops())
                said, seconds = await ends(reader, PATIENCE_S)
                task.cancel()
                writer.close()
                self.assertTrue(said == b"" or b" 408 " in said.split(b"\r\n")[0], said[:80])
                return seconds

            head = b"GET /r HTTP/1.1\r\nHost: x\r\n"
            for seconds in await asyncio.gather(silent(b"", b""), silent(head, b""), silent(head, b"A: b\r\n")):
                self.assertTrue(1 < seconds < 35, f"ended after {seconds:.1f} s")

    async def test_keepalive(self):
        """A peer that answers pings stays, one that does not is closed 1011 (wire.md section 1.1)."""
        async with Broker(stream("r", A), keepalive_ping_s=1, keepalive_timeout_s=4) as broker:
            alive = await Conn.open(broker.port, "/r")
            deaf = await Conn.open(broker.port, "/r")
            publisher = await Conn.open(broker.port, "/r?publish")
            for peer in (alive, deaf, publisher):
                await peer.recv()
            deaf.pong_automatically = publisher.pong_automatically = False
            # Longer than the broker waits for a pong, which is longer than a machine stands still.
            living = asyncio.create_task(alive.recv(7))
            for peer in (deaf, publisher):
                began = time.monotonic()
                event = await peer.recv(PATIENCE_S)
                self.assertEqual((event.kind, event.code, event.text), ("close", 1011, "keepalive ping timeout"))
                self.assertLess(time.monotonic() - began, 20)
            self.assertEqual((await living).kind, "timeout")
            await broker.publish("r", row(1))
            self.assertEqual((await alive.recv()).kind, "text")

    async def test_pings_are_answered_in_the_middle_of_a_replay(self):
        async with Broker(stream("r", A, max_replay=None)) as broker:
            batch = "[" + ",".join([row(1, "x" * 1000)] * 500) + "]"
            await broker.publish("r", *[batch] * 60)
            peer = await Conn.open(broker.port, "/r?offset=1", rcvbuf=4096)
            await peer.recv()
            await asyncio.sleep(0.3)
            peer.send_frame(9, b"still there?")
            rows = 0
            while (event := await peer.recv(PATIENCE_S)).kind == "text":
                rows += 1
            self.assertEqual((event.kind, event.data), ("pong", b"still there?"))
            self.assertLess(rows, 30_000, "the pong waited for the whole replay")

    async def test_a_close_is_echoed_with_data_queued(self):
        async with Broker(stream("r", A, max_replay=None)) as broker:
            batch = "[" + ",".join([row(1, "x" * 1000)] * 500) + "]"
            await broker.publish("r", *[batch] * 60)
            peer = await Conn.open(broker.port, "/r?offset=1", rcvbuf=4096)
            await peer.recv()
            peer.sent_close = True
            peer.send_frame(8, b"\x03\xe8")
            rows = 0
            while (event := await peer.recv(PATIENCE_S)).kind == "text":
                rows += 1
            self.assertEqual((event.kind, event.code), ("close", 1000))
            self.assertLess(rows, 30_000, "the close waited for the whole replay")


class Stopping(Case):
    async def stalled(self, broker: Broker) -> list:
        """Peers that do not read, do not answer, or are in the middle of something."""
        batch = "[" + ",".join([row(1, "x" * 1000)] * 500) + "]"
        await broker.publish("r", *[batch] * 40)
        peers = [await Conn.open(broker.port, "/r?offset=1", rcvbuf=4096) for _ in range(5)]
        half = await Conn.open(broker.port, "/r?publish")
        half.writer.write(b"\x81\xfe")
        _, silent = await asyncio.open_connection("127.0.0.1", broker.port)
        return [*peers, half, silent]

    async def test_sigterm_ends_within_stop_timeout(self):
        async with Broker(stream("r", A, max_replay=None), stop_timeout_s=3) as broker:
            peers = await self.stalled(broker)
            began = time.monotonic()
            self.assertEqual(await broker.stop(timeout=PATIENCE_S), 0)
            self.assertLess(time.monotonic() - began, 3 + 15)
            del peers

    async def test_second_sigterm_ends_at_once(self):
        async with Broker(stream("r", A, max_replay=None), stop_timeout_s=60) as broker:
            peers = await self.stalled(broker)
            broker.process.terminate()
            # Two that are pending at once are one.
            await eventually(lambda: '"stopping"' in broker.log_path.read_text(), "the first is not heard of")
            await asyncio.sleep(0.5)
            if broker.alive:
                began = time.monotonic()
                await broker.stop(timeout=PATIENCE_S)
                self.assertLess(time.monotonic() - began, 30)
            await broker.start()
            self.assertEqual(len(await broker.log_of("r")), 20_000)
            del peers

    async def test_peers_are_told_1001(self):
        async with Broker(stream("r", A)) as broker:
            sub, pub = await Conn.open(broker.port, "/r"), await Conn.open(broker.port, "/r?publish")
            for peer in (sub, pub):
                await peer.recv()
            stopping = asyncio.create_task(broker.stop())
            for peer in (sub, pub):
                event = await peer.recv()
                self.assertEqual((event.kind, event.code), ("close", 1001))
            self.assertEqual(await stopping, 0)


class Replays(Case):
    async def test_stalled_replays_hold_little_and_disturb_nobody(self):
        async with Broker(stream("r", A, max_replay=None)) as broker:
            batch = "[" + ",".join([row(1, "x" * 500)] * 1000) + "]"
            await broker.publish("r", *[batch] * 100)
            before = broker.resident_bytes()
            peers = [(await broker.attach("r", "?offset=1", receive_buffer=4096))[0] for _ in range(100)]
            for peer in peers:
                peer.transport.pause_reading()
            live, _ = await broker.attach("r")
            began = time.monotonic()
            for i in range(50):
                await broker.publish("r", row(i))
                self.assertEqual(json.loads(await asyncio.wait_for(live.first(), PATIENCE_S))[0], 100_001 + i)
            self.assertLess(time.monotonic() - began, PATIENCE_S)
            self.assertLess(broker.resident_bytes() - before, 128 << 20)


if __name__ == "__main__":
    unittest.main()
