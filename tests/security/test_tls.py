"""TLS: the same service, encrypted; certificates that change; clients that need one."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import unittest

import websockets

from broker import A, ADAPTER, PATIENCE_S, Broker, eventually, metrics, row, rows, stream
from guarded import GREETING, PASSWORD, Guarded, answers, basic, certificate, codes, greeting, request, tool, upgrade

ROWS = 30_000


def trusting(*certs, own: tuple | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for cert in certs:
        context.load_verify_locations(cert)
    context.set_alpn_protocols(["http/1.1", "h2"])
    if own:
        context.load_cert_chain(*own)
    return context


class Secured(Guarded):
    """A broker with a certificate of its own making."""

    # Whether the kernel may make records, which tests/ktls asks for.
    kernel = os.environ.get("TLS_KERNEL", "")

    def more_args(self) -> list[str]:
        self.cert, self.key_file = certificate(self.broker.home, "server")
        self.context = trusting(self.cert)
        if self.kernel:
            # An emulated machine takes longer than a ping may to read what is in its sockets.
            self.broker.adapter.settings["keepalive_timeout_s"] = 300
            self.broker.adapter.settings["tls"] = Table(cert=str(self.cert), key=str(self.key_file), kernel=self.kernel)
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key_file)]

    def uri(self, name: str) -> str:
        return f"wss://localhost:{self.port}/{name}"

    def connect(self, name: str, user: str = "ops", **how):
        # A machine that stands still is not judged by the client's patience.
        patient = {"open_timeout": PATIENCE_S, "ping_interval": None}
        how = {"ssl": self.context, "additional_headers": basic(user), "max_size": None, "compression": None} | patient | how
        return websockets.connect(self.uri(name), **how)

    async def secret(self, sent: bytes, **how) -> bytes:
        return await answers(self.port, sent, ssl=self.context, server_hostname="localhost", **how)

    async def makers(self) -> tuple[int, int]:
        """For how many sockets the kernel makes records, and for how many shards do."""
        found = metrics((await self.secret(request("GET", "/metrics", basic("ops")), until=b"streamcast_turns_total")).decode())
        by = [sum(v for k, v in found.items() if k.startswith(f"streamcast_tls_{maker}_connections{{")) for maker in ("kernel", "shard")]
        return int(by[0]), int(by[1])

    async def settled(self, expected: tuple[int, int]):
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while (found := await self.makers()) != expected and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        self.assertEqual(found, expected)


@unittest.skipUnless(shutil.which("openssl"), "makes its certificates with openssl")
class Tls(Secured):
    async def test_http_and_sockets_are_served(self):
        self.assertEqual(codes(await self.secret(request("GET", "/healthz"))), [200])
        self.assertEqual(codes(await self.secret(request("GET", "/stats"))), [401])
        self.assertEqual(codes(await self.secret(upgrade("/secret", basic()))), [403])
        # Two requests on one connection, the second of which becomes a socket.
        found = await self.secret(request("GET", "/healthz") + upgrade("/r", basic()), until=GREETING)
        self.assertEqual(codes(found), [200, 101])
        self.assertEqual(greeting(found)["stream"], "r")
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context, server_hostname="localhost")
        self.assertEqual(writer.get_extra_info("ssl_object").selected_alpn_protocol(), "http/1.1")
        writer.close()

    async def test_clear_text_gets_nothing(self):
        for sent in (request("GET", "/healthz"), upgrade("/r", basic()), b"\x16\x03\x01rubbish" * 100, b"\x00" * 5000):
            found = await answers(self.port, sent)
            self.assertNotIn(b"HTTP/1.1 101", found)
            self.assertNotIn(b"HTTP/1.1 200", found)
        self.assertEqual(codes(await self.secret(request("GET", "/healthz"))), [200])

    async def test_rows_go_both_ways_whole_and_in_order(self):
        async with self.connect("r?publish") as pub, self.connect("r") as live, self.connect("r?where=%7B%22id%22:7%7D") as filtered:
            for socket in (pub, live, filtered):
                await socket.recv()
            for start in range(0, ROWS, 1000):
                await pub.send(rows(start, 1000, "x" * 100))
            for _ in range(ROWS // 1000):
                self.assertIn("ok", json.loads(await pub.recv()))
            found = [json.loads(await asyncio.wait_for(live.recv(), PATIENCE_S)) for _ in range(ROWS)]
            self.assertEqual([offset for offset, _, _ in found], list(range(1, ROWS + 1)))
            self.assertEqual(json.loads(await filtered.recv())[2]["id"], 7)
            await pub.send(b"x" * 5)
            self.assertEqual(json.loads(await pub.recv())["error"], "bad_frame")
        # A replay for somebody who reads slowly: the socket is full most of the time.
        async with self.connect("r?offset=0", max_queue=1) as slow:
            await slow.recv()
            for expected in range(1, ROWS + 1):
                if expected % 5000 == 0:
                    await asyncio.sleep(0.3)
                offset, _, found = json.loads(await asyncio.wait_for(slow.recv(), PATIENCE_S))
                self.assertEqual((offset, found["name"]), (expected, "x" * 100))
            await (await slow.ping())
        self.assertEqual((slow.close_code, slow.close_reason), (1000, ""))

    async def test_a_message_in_many_records(self):
        """What a peer sends is put together from however small pieces."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context, server_hostname="localhost")
        writer.write(upgrade("/r?publish", basic("ops")))
        await reader.readuntil(b'"stream_id"')
        text = row(1).encode()
        frame = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text
        for byte in frame:
            writer.write(bytes([byte]))
            await writer.drain()
        await asyncio.wait_for(reader.readuntil(b'{"ok":[1]}'), PATIENCE_S)
        writer.close()

    async def test_a_close_under_encryption_says_that_it_is_one(self):
        async with self.connect("nope") as socket:
            with self.assertRaises(websockets.exceptions.ConnectionClosed) as end:
                await socket.recv()
        self.assertEqual(end.exception.rcvd.code, 4404)
        found = await self.secret(upgrade("/r", basic("ops")) + b"\x88\x82\0\0\0\0\x03\xe8", until=b"\x88\x02\x03\xe8")
        self.assertTrue(found.endswith(b"\x88\x02\x03\xe8"), found[-20:])

    async def test_the_official_client(self):
        import streamcast as sc

        base = f"ops:correct-horse-battery@localhost:{self.port}/r"
        async with sc.connect(f"wss://{base}", ssl=self.context) as sub, sc.publish(f"wss://{base}", ssl=self.context) as pub:
            await pub.send({"id": 1, "price": 1.5})
            self.assertEqual((await sub.recv())[2]["id"], 1)

    async def test_certificates_change_without_a_restart(self):
        async with self.connect("r") as before:
            await before.recv()
            cert, key = certificate(self.broker.home, "next")
            shutil.copy(key, self.key_file)
            shutil.copy(cert, self.cert)
            self.broker.signal(signal.SIGHUP)
            await eventually(lambda: "certificates were read again" in self.log(), "they are not read")
            with self.assertRaises(ssl.SSLError):
                await self.secret(request("GET", "/healthz"))
            await (await before.ping())
        self.context = trusting(cert)
        self.assertEqual(codes(await self.secret(request("GET", "/healthz"))), [200])
        self.cert.write_text("rubbish")
        self.broker.signal(signal.SIGHUP)
        await eventually(lambda: "certificates cannot be read" in self.log(), "nothing is said of it")
        self.assertEqual(codes(await self.secret(request("GET", "/healthz"))), [200])

    async def test_a_handshake_that_never_ends_is_given_up(self):
        peers = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(100)]
        for _, writer in peers:
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00")
        self.assertEqual(codes(await self.secret(request("GET", "/healthz"))), [200])
        ends = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in peers), return_exceptions=True), PATIENCE_S)
        self.assertEqual(len(ends), 100)


@unittest.skipUnless(shutil.which("openssl"), "makes its certificates with openssl")
class Kernel(Secured):
    """The kernel may make records: where it cannot, nobody notices."""

    kernel = "auto"

    async def test_who_makes_records_is_counted_and_makes_no_difference(self):
        has = "; used with" in tool("doctor", "--root", self.broker.home)
        async with self.connect("r?publish") as pub, self.connect("r") as one, self.connect("r") as two:
            for socket in (pub, one, two):
                await socket.recv()
            await pub.send(rows(0, 1000))
            for socket in (one, two):
                found = [json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_S))[2]["id"] for _ in range(1000)]
                self.assertEqual(found, list(range(1000)))
            await self.settled((2, 1) if has else (0, 3))
        self.assertEqual((pub.close_code, one.close_code, two.close_code), (1000, 1000, 1000))
        await self.settled((0, 0))


@unittest.skipUnless(shutil.which("openssl"), "makes its certificates with openssl")
class Commands(Secured):
    """The commands of this program that reach a broker, on their way through TLS."""

    settings = {"registry.profiles.local.revision": "1"}

    async def command(self, *args, token: str = "", **how) -> subprocess.CompletedProcess:
        env = os.environ | {"STREAMCAST_TOKEN": token}
        command = [str(ADAPTER.program()), *map(str, args)]
        return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, env=env, **how)

    async def done(self, *args, **how) -> str:
        done = await self.command(*args, **how)
        self.assertEqual(done.returncode, 0, (args, done.stderr))
        return done.stdout

    async def test_rows_go_through_both_ways(self):
        user = f"ops:{PASSWORD}@"
        await self.done("publish", f"wss://{user}localhost:{self.port}/r", "--ca", self.cert, input=row(1))
        # The name in the certificate may be an address, and a key goes along as well as a password.
        await self.done("publish", f"wss://127.0.0.1:{self.port}/r", "--ca", self.cert, token=self.key, input=row(2))
        told = await self.done("subscribe", f"wss://{user}localhost:{self.port}/r?offset=0", "--ca", self.cert, "--rows", "--limit", 2)
        self.assertEqual([json.loads(line)["id"] for line in told.splitlines()], [1, 2])

    async def test_streams_are_managed(self):
        schema = self.broker.home / "schema.json"
        schema.write_text(json.dumps(A))
        reach = ["--broker", f"https://ops:{PASSWORD}@localhost:{self.port}", "--ca", self.cert]
        await self.done("remote", "create", "made", "--schema", schema, *reach)
        self.assertIn("serving", await self.done("remote", "streams", *reach))
        await self.done("publish", f"wss://ops:{PASSWORD}@localhost:{self.port}/made", "--ca", self.cert, input=row(1))

    async def test_who_cannot_be_trusted_is_told_nothing(self):
        uri = f"wss://ops:{PASSWORD}@localhost:{self.port}/r"
        other, _ = certificate(self.broker.home, "other")
        for args, status, says in [
            (("subscribe", uri, "--wait", 30), 3, "--ca FILE"),
            (("subscribe", uri, "--ca", other), 3, "--ca FILE"),
            (("subscribe", uri, "--ca", self.key_file), 4, "no certificate"),
            (("subscribe", uri, "--ca", self.broker.home / "nope"), 4, "nope"),
            (("subscribe", uri.replace("wss:", "ws:"), "--ca", self.cert), 2, "wss://"),
            (("publish", f"wss://localhost:{self.port}/r", "--ca", self.cert), 3, "STREAMCAST_TOKEN"),
            (("remote", "streams", "--broker", f"https://localhost:{self.port}"), 3, "--ca FILE"),
        ]:
            done = await self.command(*args, input=row(9))
            self.assertEqual(done.returncode, status, (args, done.stderr))
            self.assertIn(says, done.stderr)
            self.assertNotIn(PASSWORD, done.stderr)
        # A broker that speaks no TLS.
        async with Broker(stream("r", A)) as clear:
            done = await self.command("subscribe", f"wss://localhost:{clear.port}/r")
            self.assertEqual((done.returncode, "does not speak TLS" in done.stderr), (3, True), done.stderr)


class Table(dict):
    """A TOML table on one line."""

    def __str__(self):
        return "{ " + ", ".join(f'{key} = "{value}"' for key, value in self.items()) + " }"


@unittest.skipUnless(shutil.which("openssl"), "makes its certificates with openssl")
class ClientCertificates(Secured):
    """Who has no certificate is not let in, whatever else it has."""

    def more_args(self) -> list[str]:
        args = super().more_args()
        own = certificate(self.broker.home, "client")
        self.context = trusting(self.cert, own=own)
        self.broker.adapter.settings["tls"] = Table(cert=str(self.cert), key=str(self.key_file), client_ca=str(own[0]), kernel=self.kernel or "off")
        return args

    async def test_it_is_asked_for(self):
        self.assertEqual(codes(await self.secret(upgrade("/r", basic()))), [101])
        self.assertEqual(codes(await self.secret(upgrade("/r"))), [401])
        stranger = certificate(self.broker.home, "stranger")
        for context in (trusting(self.cert), trusting(self.cert, own=stranger)):
            self.context = context
            try:
                found = await self.secret(upgrade("/r", basic()))
            except (ssl.SSLError, ConnectionError):
                found = b""
            self.assertEqual(found, b"")
