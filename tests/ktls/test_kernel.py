"""Ciphers, the end of connections and new keys, where the kernel makes the records."""

import asyncio
import json
import socket
import ssl

from broker import PATIENCE_S, row, rows
from guarded import basic, upgrade
from test_tls import Secured, trusting

SUITES = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305"]


class Records(Secured):
    kernel = "auto"

    def blocking(self, target: str = "/r") -> ssl.SSLSocket:
        """A connection by hand, its request sent and its greeting read. Ends that are not told are errors."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        peer = self.context.wrap_socket(raw, server_hostname="localhost", suppress_ragged_eofs=False)
        peer.sendall(upgrade(target, basic("ops")))
        found = b""
        while b'"stream_id"' not in found:
            found += peer.recv(65_536)
        return peer

    async def test_every_cipher(self):
        async with self.connect("r?publish") as pub:
            await pub.recv()
            sent = 0
            for number, suite in enumerate([None, *SUITES]):
                self.context = trusting(self.cert)
                if suite:
                    self.context.maximum_version = ssl.TLSVersion.TLSv1_2
                    self.context.set_ciphers(suite)
                async with self.connect("r") as live:
                    await live.recv()
                    # Batches that do not fit into one record, and single rows behind them.
                    await pub.send(rows(sent, 1000, "x" * 100))
                    await pub.send(row(sent + 1000))
                    found = [json.loads(await asyncio.wait_for(live.recv(), PATIENCE_S))[0] for _ in range(1001)]
                    self.assertEqual(found, list(range(sent + 1, sent + 1002)), suite)
                    await (await live.ping("x" * 125))
                    await self.settled((1, 1))
                self.assertEqual(live.close_code, 1000)
                sent += 1001
                await self.settled((0, 1))

    async def test_a_slow_reader_gets_everything(self):
        """Its socket is full most of the time, so records are cut anywhere: pages of a replay, then rows that come live."""
        async with self.connect("r?publish") as pub:
            await pub.recv()
            for start in range(0, 4000, 1000):
                await pub.send(rows(start, 1000, "y" * 400))
                await pub.recv()
            async with self.connect("r?offset=0", max_queue=1) as slow:
                await slow.recv()
                for expected in range(1, 4101):
                    if expected % 1000 == 0:
                        await asyncio.sleep(0.5)
                    if expected == 3900:
                        await pub.send(rows(4000, 100))
                    self.assertEqual(json.loads(await asyncio.wait_for(slow.recv(), PATIENCE_S))[0], expected)
                await self.settled((1, 1))

    async def test_the_end_is_told(self):
        def by_us():
            peer = self.blocking()
            peer.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
            found = b""
            while more := peer.recv(1000):
                found += more
            peer.close()
            return found

        # The end without an alert before it would be an error here.
        self.assertTrue((await asyncio.to_thread(by_us)).endswith(b"\x88\x02\x03\xe8"))
        peer = await asyncio.to_thread(self.blocking)
        await self.settled((1, 0))
        # An alert is no data: the connection ends, and nothing else does.
        await asyncio.to_thread(peer.unwrap)
        peer.close()
        await self.settled((0, 0))

    async def test_bytes_that_come_with_the_request_are_not_lost(self):
        def early():
            raw = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
            peer = self.context.wrap_socket(raw, server_hostname="localhost")
            ping = b"\x89\x84\0\0\0\0"
            # One ping in the record of the request, others right behind it: before or after the kernel has the keys.
            peer.sendall(upgrade("/r", basic("ops")) + ping + b"0000")
            for number in range(1, 10):
                peer.sendall(ping + b"%04d" % number)
            found = b""
            while b"0009" not in found:
                found += peer.recv(65_536)
            peer.close()
            return found

        for _ in range(10):
            found = await asyncio.to_thread(early)
            self.assertEqual([b"\x8a\x04%04d" % number in found for number in range(10)], [True] * 10)

    async def test_new_keys_end_the_connection_in_order(self):
        """The kernel cannot go on with keys that a peer has changed; the peer is told to come back."""
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-servername", "localhost", "-CAfile", str(self.cert)]
        peer = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        found = b""

        async def until(text: bytes):
            nonlocal found
            while text not in found:
                more = await asyncio.wait_for(peer.stdout.read(65_536), PATIENCE_S)
                self.assertTrue(more, found[-300:])
                found += more

        peer.stdin.write(upgrade("/r", basic("ops")))
        await until(b'"stream_id"')
        await self.settled((1, 0))
        # The letter asks openssl for new keys.
        peer.stdin.write(b"K\n")
        await until(b"\x03\xf4keys changed")
        await self.settled((0, 0))
        peer.stdin.close()
        await peer.wait()
        async with self.connect("r") as again:
            await again.recv()

    async def test_what_is_no_record_ends_one_connection(self):
        peer = await asyncio.to_thread(self.blocking)
        await self.settled((1, 0))
        async with self.connect("r") as other:
            await other.recv()
            raw = socket.socket(fileno=peer.detach())
            raw.sendall(b"\x17\x03\x03\x00\x40" + b"z" * 64)
            await self.settled((1, 0))
            raw.close()
            await (await other.ping())

    async def test_the_official_client(self):
        import streamcast as sc

        base = f"ops:correct-horse-battery@localhost:{self.port}/r"
        async with sc.connect(f"wss://{base}", ssl=self.context) as sub, sc.publish(f"wss://{base}", ssl=self.context) as pub:
            for number in range(100):
                await pub.send({"id": number, "price": 1.5})
                self.assertEqual((await sub.recv())[2]["id"], number)
            await self.settled((1, 1))
