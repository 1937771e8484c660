"""A policy that changes, and what ends by itself."""

import asyncio
import base64
import json
import signal
import subprocess
import time

import websockets

from broker import PATIENCE_S, eventually, http
from guarded import PASSWORD, WRONG, Guarded, answers, basic, codes, request, tool, upgrade


class Change(Guarded):
    policy = "[limits]\nfailures = 5\nfailure_s = 600\n"

    async def reload(self, says: str):
        before = self.log().count(says)
        self.broker.signal(signal.SIGHUP)
        await eventually(lambda: self.log().count(says) > before, f"no {says!r} in the log")

    async def closed(self, socket) -> int:
        try:
            while True:
                await asyncio.wait_for(socket.recv(), PATIENCE_S)
        except websockets.exceptions.ConnectionClosed as end:
            return end.rcvd.code

    async def test_a_revoked_key_ends_its_connections_and_no_others(self):
        headers = {"Authorization": f"Bearer {self.key}"}
        async with websockets.connect(self.broker.uri("r", "?publish"), additional_headers=headers) as etl, \
                websockets.connect(self.broker.uri("r"), additional_headers=basic()) as ann:
            await etl.recv(), await ann.recv()
            tool("keys", "revoke", self.key.split("_")[1], "--file", self.keys)
            await self.reload("policy was read again")
            self.assertEqual(await self.closed(etl), 4401)
            self.assertEqual(await self.codes(upgrade("/r?publish", headers)), [401])
            await asyncio.sleep(1.2)
            await (await ann.ping())
            self.write_policy()
            self.rules.write_text(self.rules.read_text().replace('"data.read" = "r"', '"data.read" = "q"'))
            await self.reload("policy was read again")
            self.assertEqual(await self.closed(ann), 4401)
            self.assertEqual(await self.codes(upgrade("/r", basic())), [403])

    async def test_readers_over_http_get_no_more_either(self):
        target = "/v1/streams/r/entries?after=head"
        asked = [
            request("GET", target, basic() | {"Accept": "text/event-stream"}), request("GET", f"{target}&wait=30", basic()),
            request("GET", f"{target}&wait=30&limit=5", basic() | {"Accept": "application/x-ndjson"}),
        ]
        # Each connection is let in with another request first, so that there is no check that the policy could overtake.
        known = request("GET", "/v1/access", basic())
        there = [asyncio.Event() for _ in asked]
        readers = [asyncio.create_task(answers(self.port, known + sent, until=b"authentication_required", reached=reached))
                   for sent, reached in zip(asked, there)]
        await asyncio.wait_for(asyncio.gather(*(reached.wait() for reached in there)), PATIENCE_S)
        await asyncio.sleep(0.5)
        self.rules.write_text(self.rules.read_text().replace('"data.read" = "r"', '"data.read" = "q"'))
        await self.reload("policy was read again")
        await asyncio.sleep(1.2)
        body = {"entries": [{"id": 1, "price": 1}]}
        inserted = await http(self.port, "POST", "/v1/streams/r/entries", headers=basic("ops"), body=json.dumps(body).encode())
        self.assertEqual(inserted.code, 200, inserted.text)
        for answer, status in zip(await asyncio.gather(*readers), (200, 401, 401)):
            self.assertEqual(codes(answer), [200, status])
            self.assertIn(b'{"error":{"code":"authentication_required"', answer)
            self.assertNotIn(b'"entry"', answer)
        self.assertIn(b"event: error\n", readers[0].result())
        self.assertIn(b"www-authenticate: Basic", readers[1].result())

    async def test_a_policy_with_a_mistake_changes_nothing(self):
        self.rules.write_text("[[principal]]\nname = 7\n")
        await self.reload("the one from before stays")
        self.assertEqual(await self.codes(upgrade("/r", basic())), [101])

    async def test_guessing_is_slowed_down(self):
        for _ in range(5):
            self.assertEqual(await self.codes(upgrade("/r", basic("ann", WRONG))), [401])
        for password in (WRONG, PASSWORD):
            answer = await http(self.port, "GET", "/stats", headers=basic("ops", password))
            self.assertEqual((answer.code, answer.headers.get("retry-after")), (429, "1"))
            self.assertEqual(json.loads(answer.text)["error"]["code"], "too_many_failures")
        # What cannot be guessed goes on being let in.
        self.assertEqual(await self.codes(upgrade("/r?publish", {"Authorization": f"Bearer {self.key}"})), [101])
        self.assertEqual(await self.codes(request("GET", "/healthz")), [200])

    async def test_many_at_once_wait_for_one_check(self):
        began = time.monotonic()
        found = await asyncio.gather(*(self.codes(upgrade("/r", basic())) for _ in range(200)))
        self.assertEqual(found, [[101]] * 200)
        self.assertLess(time.monotonic() - began, PATIENCE_S)


class Tokens(Guarded):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.private = self.broker.home / "ed.pem"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ED25519", "-out", self.private], check=True)
        public = subprocess.run(["openssl", "pkey", "-in", self.private, "-pubout", "-outform", "DER"], check=True, capture_output=True).stdout[-32:]
        jwks = {"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": self.text(public)}]}
        (self.broker.home / "jwks.json").write_text(json.dumps(jwks))
        issuer = '[[issuer]]\nissuer = "https://id.example"\naudience = "streamcast"\njwks_file = "jwks.json"\nleeway_s = 0\n[issuer.grants]\n"data.*" = "r"\n'
        self.rules.write_text(self.rules.read_text() + issuer)
        await self.broker.restart()

    @staticmethod
    def text(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    def token(self, **claims) -> dict:
        claims = {"iss": "https://id.example", "aud": "streamcast", "sub": "ann", "exp": time.time() + 60} | claims
        parts = [self.text(json.dumps(part).encode()) for part in ({"alg": "EdDSA", "kid": "k"}, claims)]
        (self.broker.home / "signed").write_text(".".join(parts))
        command = ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.private, "-in", self.broker.home / "signed"]
        return {"Authorization": "Bearer " + ".".join([*parts, self.text(subprocess.run(command, check=True, capture_output=True).stdout)])}

    async def test_a_token_lets_in_until_it_expires(self):
        self.assertEqual(await self.codes(upgrade("/r", self.token())), [101])
        self.assertEqual(await self.codes(upgrade("/secret", self.token())), [403])
        for wrong in ({"aud": "x"}, {"iss": "x"}, {"exp": time.time() - 1}, {"nbf": time.time() + 60}):
            self.assertEqual(await self.codes(upgrade("/r", self.token(**wrong))), [401], wrong)
        for life_s in (3, 10, 30):
            until = time.time() + life_s
            try:
                async with websockets.connect(self.broker.uri("r"), additional_headers=self.token(exp=until)) as socket:
                    await socket.recv()
                    with self.assertRaises(websockets.exceptions.ConnectionClosed) as end:
                        await asyncio.wait_for(socket.recv(), life_s + PATIENCE_S)
                break
            except websockets.exceptions.InvalidStatus as refused:
                # It was over before it was shown, if the machine stood still meanwhile.
                self.assertEqual((refused.response.status_code, time.time() >= until), (401, True))
        self.assertEqual((end.exception.rcvd.code, end.exception.rcvd.reason), (4401, '{"error":"credentials_expired"}'))
        self.assertGreaterEqual(time.time(), until - 0.1)
