"""Ways past the gate: spellings of a path, two requests in one, fields that say two things."""

import json

from broker import http
from guarded import GREETING, PASSWORD, WRONG, Guarded, answers, basic, codes, greeting, request, upgrade


class Bypass(Guarded):
    async def test_the_gate_opens_for_what_is_granted(self):
        """Otherwise nothing below means anything."""
        answer = await answers(self.port, upgrade("/r", basic()), until=GREETING)
        self.assertEqual(codes(answer), [101])
        self.assertEqual(greeting(answer)["stream"], "r")
        self.assertEqual(await self.codes(upgrade("/secret", basic("ops"))), [101])
        self.assertEqual(await self.codes(upgrade("/r?publish", {"Authorization": f"Bearer {self.key}"})), [101])
        self.assertEqual(await self.codes(upgrade("/r?publish", basic("key", self.key))), [101])

    async def test_spellings_of_a_path(self):
        spelled = [
            "/secret", "//secret", "///secret", "/%73ecret", "/%2573ecret", "/./secret", "/r/../secret", "/r/%2e%2e/secret",
            "/secret/", "/secret%00", "/secret%2f", "/secret%3fx", "/secret?", "/secret?offset=0", "/secret#r", "/r%23/secret",
            "/SECRET", "/sécret".encode().decode("latin-1"), "/r;secret", "/r%20", "/r/", "/%72/..%2fsecret", "http://localhost/secret",
            "//r/secret", "/?secret", "/nope", "/_console", "/stats", "*", "/r?publish", "/r?%70ublish", "/r?x=1&publish=0",
            "/secret?ticket=", "/secret?ticket=x&ticket=y",
        ]
        for target in spelled:
            found = await self.codes(upgrade(target, basic()))
            self.assertNotIn(101, found, target)
            self.assertTrue(all(code in (400, 401, 403, 404, 405) for code in found), (target, found))
        # Two requests that differ in nothing but whether there is such a stream are answered alike.
        there, not_there = [await answers(self.port, upgrade(target, basic())) for target in ("/secret", "/nopety")]
        strip = lambda answer: [line for line in answer.split(b"\r\n") if not line.lower().startswith(b"date")]
        self.assertEqual(strip(there), strip(not_there))

    async def test_every_path_asks(self):
        for method, target in [
            ("POST", "/"), ("GET", "/?x=1"), ("GET", "/v1/access?x=1"), ("POST", "/v1/access"), ("GET", "/control/v1/principals"),
            ("GET", "/control/v1/keys"), ("GET", "/stats"), ("GET", "/stats/"), ("GET", "/metrics"), ("GET", "/console/history"), ("GET", "/nope"),
            ("GET", "/openapi.json"), ("GET", "/control/v1"), ("GET", "/control/v1/streams"), ("GET", "//control/v1"), ("PUT", "/control/v1/streams/x"),
            ("POST", "/control/v1/streams/x/migrations"), ("GET", "/v1/streams"), ("POST", "/v1/streams"), ("POST", "/v1/streams/r/entries"),
            ("POST", "/v1/tickets"), ("OPTIONS", "/stats"), ("TRACE", "/stats"), ("CONNECT", "/stats"), ("HEAD", "/stats"), ("BREW", "/stats"),
            ("GET", "/healthz/../stats"), ("GET", "/healthz%2f../stats"), ("GET", "/healthz/stats"),
        ]:
            found = await self.codes(request(method, target))
            self.assertTrue(found and found[0] in (400, 401), (method, target, found))
        # The page and the question who asks have nothing in them that is not for everybody.
        for target in ("/healthz", "/readyz", "/", "/v1/access"):
            self.assertEqual(await self.codes(request("GET", target)), [200], target)
        self.assertEqual(await self.codes(upgrade("/")), [401])
        self.assertEqual(await self.codes(upgrade("/v1/access")), [401])
        self.assertEqual(await self.codes(request("GET", "/v1/access", basic("ann", WRONG))), [401])
        told = (await answers(self.port, request("GET", "/v1/access"))).split(b"\r\n\r\n", 1)[1]
        self.assertEqual(json.loads(told), {"policy": True, "principal": None, "anonymous": False, "expires": None, "grants": {}})
        for target in ("/stats", "/metrics", "/console/history", "/control/v1", "/control/v1/streams", "/control/v1/principals", "/control/v1/keys"):
            self.assertEqual(await self.codes(request("GET", target, basic())), [403], target)
        self.assertEqual(await self.codes(request("GET", "/metrics", basic("ops"))), [200])

    async def test_what_is_no_credential(self):
        good = basic()["Authorization"]
        for fields in [
            [("Authorization", "Basic")], [("Authorization", "Basic !!!!")], [("Authorization", "Digest x")], [("Authorization", "Bearer ")],
            [("Authorization", good), ("Authorization", good)], [("Authorization", "Bearer x"), ("authorization", good)],
            [("Authorization", good.replace("Basic", "Basic\t"))], [("Authorization", f"{good},{good}")], [("Authorization", good + "=")],
            [("X-Authorization", good)], [("Proxy-Authorization", good)], [("Cookie", good)], [("Authorization", "Bearer " + "a" * 9000)],
            [("Authorization", "Bearer e30.e30.e30")], [("Authorization", "Bearer sck_000000000000_" + "a" * 43)],
            list(basic("ann", WRONG).items()), list(basic("Ann").items()), list(basic("ann ", PASSWORD).items()), list(basic("", "").items()),
        ]:
            found = await self.codes(upgrade("/r", fields))
            self.assertTrue(found and found[0] in (400, 401, 429), (fields, found))

    async def test_two_requests_in_one(self):
        """Each request on a connection is judged by itself, and a body is never taken for a request."""
        inner = request("GET", "/metrics", basic("ops"))
        bare = request("GET", "/metrics")
        for sent, allowed in [
            # Pipelined: the second has no credentials.
            (request("GET", "/metrics", basic("ops")) + bare, [[200, 401], [200]]),
            (upgrade("/secret", basic()) + bare, [[403, 401], [403]]),
            # One hidden in the body of another, with lengths that contradict each other.
            (request("POST", "/stats", [("Content-Length", "0"), ("Content-Length", str(len(inner)))], inner), [[400], [401], []]),
            (request("POST", "/stats", [("Content-Length", str(len(inner))), ("Transfer-Encoding", "chunked")], b"0\r\n\r\n" + bare), [[400], [401], [401, 401], []]),
            (request("POST", "/stats", [("Transfer-Encoding", "chunked, identity")], b"0\r\n\r\n" + bare), [[400], [401], [401, 401], []]),
            (request("POST", "/stats", [("Transfer-Encoding", "gzip, chunked")], b"0\r\n\r\n" + bare), [[501], [501, 401], [400]]),
            (request("POST", "/stats", [("Transfer-Encoding", "\x0bchunked")], b"0\r\n\r\n" + bare), [[400], [401], [401, 401], []]),
            (request("GET", "/stats", [("Content-Length", f"+{len(bare)}")], bare), [[400], [401], []]),
            (b"GET /stats HTTP/1.1\nHost: x\n\n" + bare, [[400], [401], [401, 401], []]),
            # An upgrade that has a body.
            (upgrade("/r", [("Content-Length", str(len(bare))), *basic().items()], bare), [[400], [101], [403], [401]]),
            (upgrade("/r", [("Transfer-Encoding", "chunked"), *basic().items()], b"0\r\n\r\n" + bare), [[400], [101], [101, 401], [403]]),
        ]:
            found = await self.codes(sent)
            self.assertIn(found, allowed, sent[:200])

    async def test_split_fields_are_not_said_again(self):
        for target in ("/r%0d%0aX-Evil:%20yes", "/stats?x=%0d%0aX-Evil:%20yes", "/control/v1/streams/a%0d%0aX-Evil:%20yes"):
            for fields in ((), basic(), basic("ops")):
                for sent in (request("GET", target, fields), upgrade(target, fields)):
                    self.assertNotIn(b"\r\nx-evil", (await answers(self.port, sent)).lower())
        for raw in (b"GET /r HTTP/1.1\r\nHost: x\r\nAuthorization : Basic eA==\r\n\r\n", b"GET /stats HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n",
                    b"GET /stats\r\n\r\n", b"GET  /stats HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"):
            self.assertFalse({101, 200} & set(await self.codes(raw)), raw)

    async def test_pages_of_other_sites(self):
        strange = {"Origin": "https://evil.example"}
        for sent in (upgrade("/r", basic() | strange), request("GET", "/metrics", basic("ops") | strange), request("POST", "/v1/tickets", basic() | strange)):
            self.assertEqual(await self.codes(sent), [403])
        self.assertEqual(await self.codes(upgrade("/r", basic() | {"Origin": "http://localhost"})), [101])

    async def test_tickets(self):
        answer = await http(self.port, "POST", "/v1/tickets", headers=basic(), body=b"")
        self.assertEqual(answer.code, 201)
        ticket = json.loads(answer.text)["ticket"]
        self.assertEqual(await self.codes(upgrade(f"/secret?ticket={ticket}")), [403])
        self.assertEqual(await self.codes(upgrade(f"/r?ticket={ticket}")), [401], "it was used")
        ticket = json.loads((await http(self.port, "POST", "/v1/tickets", headers=basic(), body=b"")).text)["ticket"]
        found = greeting(await answers(self.port, upgrade(f"/r?offset=0&ticket={ticket}"), until=GREETING))
        self.assertEqual(found["replay"], [1, 1])
        self.assertEqual(await self.codes(request("POST", "/v1/tickets")), [401])

    async def test_no_secret_is_said_anywhere(self):
        """At the most talkative level of the log."""
        ticket = json.loads((await http(self.port, "POST", "/v1/tickets", headers=basic(), body=b"")).text)["ticket"]
        said = b""
        for fields in (basic(), basic("ops"), basic("ann", WRONG), {"Authorization": f"Bearer {self.key}"}, {"Authorization": "Bearer " + WRONG}, basic("etl", self.key)):
            for sent in (upgrade("/r", fields), upgrade("/secret", fields), upgrade("/r?publish", fields), request("GET", "/stats", fields),
                         request("GET", "/metrics", fields), request("GET", "/console/history", fields), request("PUT", "/control/v1/streams/x", fields)):
                said += await answers(self.port, sent, quiet=0.05)
        said += await answers(self.port, upgrade(f"/r?ticket={ticket}&bogus=1"))
        said += await answers(self.port, request("DELETE", f"/v1/streams/x?ticket={ticket}", basic("ops")))
        said += await answers(self.port, upgrade("/r", [*basic().items(), ("X", "y" * 70_000)]))
        log = self.log()
        self.assertIn("audit", log)
        encoded = [basic()["Authorization"][6:], basic("ops")["Authorization"][6:], basic("ann", WRONG)["Authorization"][6:], basic("etl", self.key)["Authorization"][6:]]
        for secret in (PASSWORD, WRONG, self.key, self.key.split("_", 2)[2], ticket, self.hash, *encoded):
            self.assertNotIn(secret, log)
            self.assertNotIn(secret.encode(), said)
