"""Bounds of plain HTTP: heads, fields, bodies, waiting, and how many at a time."""

import asyncio
import time
import unittest

from broker import A, PATIENCE_S, Broker, Case, http, row, stream


async def ask(broker: Broker, request: bytes, within: float = PATIENCE_S) -> bytes:
    """Send bytes; the first line of the answer, or nothing if the connection just ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        writer.write(request)
        async with asyncio.timeout(within):
            try:
                return (await reader.readline()).strip()
            except ConnectionError:
                return b""
    finally:
        writer.close()


class Http(Case):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.broker = Broker(stream("r", A))
        await self.broker.start()

    async def asyncTearDown(self):
        await self.broker.__aexit__()

    async def well(self):
        self.assertEqual((await http(self.broker.port, "GET", "/healthz")).code, 200)
        self.assertIn("ok", (await self.broker.publish("r", row(1)))[0])

    async def refused(self, request: bytes, *codes: int):
        """Answered with one of these, or the connection ends; never a success."""
        line = await ask(self.broker, request)
        if line:
            self.assertIn(int(line.split()[1]), codes, line)
        await self.well()

    async def test_head_bytes(self):
        await self.refused(b"GET /stats HTTP/1.1\r\nHost: x\r\nA: " + b"b" * (1 << 20) + b"\r\n\r\n", 400, 431)

    async def test_header_count(self):
        fields = b"".join(b"X-%d: y\r\n" % i for i in range(1000))
        await self.refused(b"GET /stats HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n", 400, 431)

    async def test_target_bytes(self):
        await self.refused(b"GET /" + b"a" * (1 << 18) + b" HTTP/1.1\r\nHost: x\r\n\r\n", 400, 404, 414, 431)

    async def test_body_bytes(self):
        head = b"POST /stats HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (1 << 30)
        await self.refused(head + b"x" * 65_536, 405, 413)

    async def test_unanswered_requests_in_one_connection(self):
        """Pipelined requests are answered in order, one after the other."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        self.assertEqual(answer.count(b"HTTP/1.1 200"), 51)

    async def test_idle_connections_end(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        began = time.monotonic()
        await asyncio.wait_for(reader.read(), 100)
        self.assertGreater(time.monotonic() - began, 0.5)

    async def test_many_at_once_do_not_starve_streams(self):
        """More HTTP connections than are served at once: the rest hear 503 or wait, streams go on."""

        async def one():
            try:
                return (await http(self.broker.port, "GET", "/metrics")).code
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                return 0

        asking = [asyncio.create_task(one()) for _ in range(400)]
        began = time.monotonic()
        for _ in range(20):
            self.assertIn("ok", (await self.broker.publish("r", row(1)))[0])
        self.assertLess(time.monotonic() - began, PATIENCE_S)
        codes = set(await asyncio.gather(*asking))
        self.assertLessEqual(codes, {200, 503, 0})
        self.assertIn(200, codes)
        await self.well()


if __name__ == "__main__":
    unittest.main()
