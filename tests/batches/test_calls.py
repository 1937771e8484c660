"""Every call, and every status that one can have."""

import asyncio
import json
import socket
import sqlite3
import time

from api import Api, apart, until
from api_case import ApiCase
from broker import A, stream

try:
    import streamcast as sc
except ImportError:
    sc = None


class Calls(ApiCase):
    streams = (stream("t", A), stream("live", None), stream("once", A, exactly_once=True))

    async def test_a_stream_from_its_creation_to_its_end(self):
        api = self.api
        made = api.create("events", validator='entry.user_id != ""')
        self.assertEqual(made.status, 201, made.body)
        made = made.json
        self.assertRegex(made["id"], "^str_[0-9a-f]{32}$")
        self.assertEqual((made["cursor"], made["entryCount"], made["validatorVersion"], made["schema"]), (None, 0, 1, None))
        self.assertIn("events", [one["name"] for one in api.get("/v1/streams").json["streams"]])
        answer = api.insert("events", [{"user_id": "u1", "amount": 100}, {"user_id": "u2", "amount": 200}], idempotencyKey="req-1")
        self.assertEqual(answer.status, 200, answer.body)
        first = answer.json
        self.assertEqual((first["inserted"], first["duplicate"], len(first["entries"])), (2, False, 2))
        self.assertEqual(first["entries"][1]["cursor"], first["committedCursor"])
        again = api.insert("events", [{"user_id": "u1", "amount": 100}, {"user_id": "u2", "amount": 200}], idempotencyKey="req-1")
        self.assertEqual(again.json, first | {"duplicate": True})
        refused = api.insert("events", [{"user_id": "u3"}, {"user_id": ""}, {"amount": 1}])
        self.assertEqual(refused.code, (422, "validation_failed"))
        self.assertEqual([one["index"] for one in refused.json["error"]["details"]["failures"]], [1, 2])
        self.assertEqual(api.call("PATCH", "/v1/streams/events", {"validator": None}).json["validatorVersion"], 2)
        self.assertEqual(api.insert(made["id"], [{"user_id": ""}], returnEntryIds=False).status, 200)
        page = api.read("events").json
        self.assertEqual([one["entry"] for one in page["entries"]],
                         [{"user_id": "u1", "amount": 100}, {"user_id": "u2", "amount": 200}, {"user_id": ""}])
        self.assertEqual(page["cursor"], page["head"])
        now = api.get("/v1/streams/events").json
        self.assertEqual((now["cursor"], now["entryCount"]), (page["head"], 3))
        # Rows of any objects go out as they were published, through every door.
        self.assertEqual([row for _, _, row in await self.broker.log_of("events")], [one["entry"] for one in page["entries"]])
        self.assertEqual((await self.broker.publish("events", '{"any":[1,{"b":null}]}'))[0], {"ok": [4]})
        self.assertEqual(api.read("events", after=page["head"]).json["entries"][0]["entry"], {"any": [1, {"b": None}]})
        await self.broker.restart()
        api.close()
        self.assertEqual(api.get("/v1/streams/events").json["validatorVersion"], 2)
        self.assertEqual(len(api.everything(made["id"])), 4)
        gone = api.call("DELETE", "/v1/streams/events")
        self.assertEqual((gone.status, gone.json["state"]), (202, "deleting"))
        self.assertEqual(api.get("/v1/streams/events").code, (404, "stream_not_found"))
        for answer in (api.read(made["id"]), api.insert(made["id"], [{}]), api.get(f"/v1/streams/{made['id']}")):
            self.assertEqual(answer.code, (410, "stream_deleted"))
        other = api.create("events").json
        self.assertNotEqual(other["id"], made["id"])
        self.assertEqual(api.read("events").json, {"entries": [], "cursor": None, "head": None})
        until(lambda: api.get(f"/v1/streams/{made['id']}").json["error"]["details"]["state"] == "deleted")
        await self.broker.restart(kill=True)
        api.close()
        self.assertEqual(api.get(f"/v1/streams/{made['id']}").code, (410, "stream_deleted"))
        self.assertEqual(api.get("/v1/streams/events").json["id"], other["id"])
        left = sqlite3.connect(self.broker.root / "journal.db")
        tables = [name for (name,) in left.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'batches_%'")]
        left.close()
        self.assertEqual(len(tables), 3, tables)

    async def test_both_doors_lead_to_the_same_rows(self):
        live, _ = await self.broker.attach("t")
        answer = self.api.insert("t", [{"id": 1, "price": 2}, {"id": 2, "price": 3, "name": "x"}]).json
        seen = []
        while len(seen) < 2:
            seen += map(json.loads, await live.take())
        self.assertEqual([row for _, _, row in seen],
                         [{"id": 1, "price": 2.0, "name": None}, {"id": 2, "price": 3.0, "name": "x"}])
        self.assertEqual([offset for offset, _, _ in seen], [one["offset"] for one in answer["entries"]])
        waiting = apart(Api(self.broker.port).read, "t", after=answer["committedCursor"], wait=30)
        follower = Follow(self.broker.port, "t", answer["committedCursor"])
        waiting = asyncio.create_task(waiting)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await self.broker.publish("t", '{"id":3,"price":1}')
        page = (await waiting).json
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual([(one["offset"], one["entry"]["id"]) for one in page["entries"]], [(3, 3)])
        event = await apart(follower.event)
        self.assertEqual(event["data"]["offset"], 3)
        self.assertEqual(event["id"], page["cursor"])
        follower.close()
        self.assertEqual([(offset, ts, row) for offset, ts, row in await self.broker.log_of("t")],
                         [(one["offset"], one["ts"], one["entry"]) for one in self.api.everything("t")])

    async def test_the_official_client_sees_what_is_inserted(self):
        if not sc:
            self.skipTest("the Python package is not here")
        self.api.create("any")
        for name, entry in (("t", {"id": 7, "price": 1.5, "name": None}), ("any", {"deep": {"list": [1, 2.5, "x"]}})):
            async with sc.connect(self.broker.uri(name)) as live:
                self.api.insert(name, [entry])
                self.assertEqual((await live.recv())[2], entry)
            async with sc.connect(self.broker.uri(name), offset=sc.EARLIEST) as replay:
                self.assertEqual((await replay.recv())[2], entry)
            async with sc.publish(self.broker.uri(name)) as publisher:
                self.assertEqual(await publisher.send(entry), 2)
            self.assertEqual([one["entry"] for one in self.api.everything(name)], [entry, entry])

    async def test_reads_in_every_form(self):
        api = self.api
        api.insert("t", [{"id": i, "price": i % 3} for i in range(2500)], returnEntryIds=False)
        want = list(range(2500))
        self.assertEqual([one["entry"]["id"] for one in api.everything("t", limit=999)], want)
        self.assertEqual(len(api.read("t").json["entries"]), 1000)
        self.assertEqual(len(api.read("t", limit=10000).json["entries"]), 2500)
        page = api.read("t", where='{"price":1}', limit=10).json
        self.assertEqual([one["entry"]["id"] for one in page["entries"]], list(range(1, 30, 3)))
        rest = api.read("t", where='{"price":1}', limit=10000, after=page["cursor"]).json
        self.assertEqual([one["entry"]["id"] for one in rest["entries"]], list(range(31, 2500, 3)))
        lines = api.get("/v1/streams/t/entries", {"Accept": "application/x-ndjson"})
        self.assertEqual([json.loads(line)["entry"]["id"] for line in lines.body.splitlines()], want)
        self.assertEqual(lines.headers["Streamcast-Cursor"], rest["head"])
        some = api.get("/v1/streams/t/entries", {"Accept": "application/x-ndjson"}, limit=5)
        self.assertEqual(len(some.body.splitlines()), 5)
        self.assertEqual(some.headers["Streamcast-Cursor"], json.loads(some.body.splitlines()[-1])["cursor"])
        began = time.monotonic()
        empty = api.read("t", after="head", wait=0.3).json
        self.assertGreater(time.monotonic() - began, 0.25)
        self.assertEqual((empty["entries"], empty["cursor"]), ([], empty["head"]))
        follower = Follow(self.broker.port, "t", None)
        events = [follower.event() for _ in range(10)]
        follower.close()
        self.assertEqual([one["data"]["entry"]["id"] for one in events], want[:10])
        follower = Follow(self.broker.port, "t", None, last_event_id=events[-1]["id"])
        self.assertEqual(follower.event()["data"]["entry"]["id"], 10)
        follower.close()

    async def test_a_page_has_no_more_than_eight_mebibytes(self):
        api = self.api
        api.create("wide")
        for size, count in ((1_000_000, 12), (850, 10_000)):
            entries = [{"n": n, "text": "x" * size} for n in range(count)]
            for begin in range(0, count, 6 if size > 1000 else 5_000):
                self.assertEqual(api.insert("wide", entries[begin : begin + (6 if size > 1000 else 5_000)]).status, 200)
        for headers in ({}, {"Accept": "application/x-ndjson"}):
            after, found, pages = "", [], 0
            while True:
                answer = api.get("/v1/streams/wide/entries", headers, limit=10_000, after=after)
                self.assertLessEqual(len(answer.body), 8 << 20)
                page = [json.loads(line) for line in answer.body.splitlines()] if headers else answer.json["entries"]
                if not page:
                    break
                found, pages, after = found + page, pages + 1, answer.headers["streamcast-cursor"] if headers else answer.json["cursor"]
            self.assertEqual([one["offset"] for one in found], list(range(1, 10_013)))
            # Nor much less: 12 MB and then 9 MB.
            self.assertEqual(pages, 3)

    async def test_readers_wait_where_nothing_was_ever_written(self):
        api = self.api
        api.create("new")
        for query in ({}, {"offset": 0}, {"offset": 1}, {"after": "head"}):
            # No boundary but the origin, so whoever goes on until the head has come to it.
            self.assertEqual(api.read("new", **query).json, {"entries": [], "cursor": None, "head": None}, query)
        self.assertEqual(api.read("new", offset=2).code, (400, "invalid_request"))
        follow = Follow(self.broker.port, "new", None, offset=1)
        other = Api(self.broker.port)
        waiting = asyncio.create_task(apart(other.read, "new", offset=1, wait=30))
        await asyncio.sleep(0.3)
        # Others are answered meanwhile.
        api.close()
        api.timeout = 15
        self.assertEqual(api.get("/healthz").status, 200)
        self.assertEqual(api.insert("new", [{"n": 1}]).status, 200)
        self.assertEqual([one["entry"] for one in (await waiting).json["entries"]], [{"n": 1}])
        self.assertEqual(follow.event()["data"]["entry"], {"n": 1})
        follow.close()
        other.close()

    async def test_what_is_wrong_is_told(self):
        api = self.api
        api.create("any")
        one = api.insert("t", [{"id": 1, "price": 1}], idempotencyKey="k").json
        foreign = api.insert("any", [{}]).json["committedCursor"]
        path = "/v1/streams/t/entries"
        deep = '{"a":' * 33 + "1" + "}" * 33
        for want, answer in [
            ((400, "invalid_json"), api.call("POST", path, "{")),
            ((400, "invalid_request"), api.call("POST", path, "[]")),
            ((400, "invalid_request"), api.insert("t", [])),
            ((400, "invalid_request"), api.insert("t", [{"id": 1, "price": 1}], idempotencyKey="x" * 257)),
            ((400, "invalid_request"), api.insert("t", [{"id": 1, "price": 1}], what=1)),
            ((400, "invalid_cursor"), api.read("t", after="cur_x")),
            ((400, "invalid_cursor"), api.read("t", after=foreign)),
            ((400, "invalid_cursor"), api.get(path, {"Accept": "text/event-stream", "Last-Event-ID": foreign})),
            ((400, "invalid_request"), api.read("t", limit=0)),
            ((400, "invalid_request"), api.read("t", limit=10001)),
            ((400, "invalid_request"), api.read("t", wait=31)),
            ((400, "invalid_request"), api.read("t", x=1)),
            ((400, "invalid_where"), api.read("t", where="{")),
            ((400, "invalid_where"), api.read("t", where='{"nope":1}')),
            ((400, "invalid_name"), api.create("a b")),
            ((400, "invalid_name"), api.create("n" * 129)),
            ((400, "invalid_validator"), api.create("v", validator="entry.")),
            ((400, "invalid_validator"), api.create("v", validator="other == 1")),
            ((400, "invalid_validator"), api.create("v", validator=5)),
            ((400, "invalid_validator"), api.call("PATCH", "/v1/streams/any", {"validator": "("})),
            ((400, "invalid_request"), api.call("PATCH", "/v1/streams/any", {})),
            ((400, "invalid_request"), api.call("POST", "/v1/streams", {})),
            ((400, "invalid_entry_id"), api.erase("t", entryIds=["ent_x"])),
            ((400, "invalid_request"), api.erase("t")),
            ((400, "invalid_request"), api.erase("t", entryIds=[])),
            ((403, "forbidden"), api.call("POST", "/v1/streams", {"name": "x"}, {"Origin": "http://evil.example"})),
            ((404, "stream_not_found"), api.read("nope")),
            ((404, "stream_not_found"), api.get("/v1/streams/str_" + "0" * 32)),
            ((404, "stream_not_found"), api.call("DELETE", "/v1/streams/nope")),
            ((409, "stream_exists"), api.create("any")),
            ((409, "stream_exists"), api.create("t")),
            ((409, "stream_not_durable"), api.read("live")),
            ((409, "stream_is_configured"), api.call("DELETE", "/v1/streams/t")),
            ((409, "idempotency_key_reused"), api.insert("t", [{"id": 2, "price": 1}], idempotencyKey="k")),
            ((413, "request_too_large"), api.insert("any", [{"a": "x" * (1 << 20)}])),
            ((413, "request_too_large"), api.call("POST", "/v1/streams/any/entries", '{"entries":[' + "{}," * 100000 + "{}]}")),
            # This client sends all of it before it looks for an answer.
            ((413, "request_too_large"), api.call("POST", path, b" " * ((8 << 20) + 1))),
            ((413, "request_too_large"), api.call("POST", path, b" " * (20 << 20))),
            ((413, "request_too_large"), api.call("PUT", "/v1/streams/t/retention", b" " * (8 << 20))),
            ((422, "validation_failed"), api.insert("t", [{"id": "x", "price": 1}])),
            ((422, "validation_failed"), api.insert("t", [{"id": 1, "price": 1}, 7])),
            ((422, "validation_failed"), api.call("POST", "/v1/streams/any/entries", '{"entries":[' + deep + "]}")),
            ((422, "invalid_schema"), api.create("s", schema={"properties": {"a": {"type": "nope"}}})),
            ((405, None), api.call("PUT", path, "{}")),
        ]:
            with self.subTest(want=want, body=answer.body[:200]):
                self.assertEqual(answer.code, want)
        # More than the limit is refused before it is sent, and while it is sent without a length.
        for head in (f"Content-Length: {(8 << 20) + 1}", "Transfer-Encoding: chunked"):
            with socket.create_connection(("127.0.0.1", self.broker.port), timeout=60) as raw:
                raw.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode())
                try:
                    for _ in range(9 if "chunked" in head else 1):
                        raw.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
                except OSError:
                    pass
                self.assertTrue(raw.recv(4096).startswith(b"HTTP/1.1 413"), head)
        # Nothing of all this is in the log.
        self.assertEqual([entry["cursor"] for entry in api.everything("t")], [one["committedCursor"]])

    async def test_a_full_batch_is_taken_at_once(self):
        self.api.create("any")
        entries = [{"n": i, "text": "x" * 50} for i in range(100_000)]
        began = time.monotonic()
        answer = self.api.insert("any", entries, idempotencyKey="big")
        took = time.monotonic() - began
        self.assertEqual(answer.status, 200)
        self.assertEqual((answer.json["inserted"], len(answer.json["entries"])), (100_000, 100_000))
        print(f"({100_000 / took:,.0f} entries/s with ids)", end=" ")
        self.assertEqual(self.api.insert("any", entries, idempotencyKey="big").json["duplicate"], True)
        self.assertEqual(self.api.get("/v1/streams/any").json["entryCount"], 100_000)
        lines = self.api.get("/v1/streams/any/entries", {"Accept": "application/x-ndjson"})
        self.assertEqual(lines.body.count(b"\n"), 100_000)

    async def test_a_validator_changes_between_two_batches(self):
        api = self.api
        api.create("v", validator="entry.n > 0")
        stop = False

        def inserting():
            other, accepted = Api(self.broker.port), []
            while not stop:
                answer = other.insert("v", [{"n": -1}])
                if answer.status == 200:
                    accepted.append(answer.json["offset"])
                else:
                    assert answer.status == 422, answer.body
            return accepted

        tasks = [asyncio.create_task(apart(inserting)) for _ in range(4)]
        # While the strict one holds, nothing gets in; the change decides for every batch that is committed after it.
        for round in range(6):
            await asyncio.sleep(0.1)
            validator = "entry.n > 0" if round % 2 else None
            changed = await apart(api.call, "PATCH", "/v1/streams/v", {"validator": validator})
            self.assertEqual(changed.json["validatorVersion"], round + 2)
            if validator:
                before = (await apart(api.get, "/v1/streams/v")).json["cursor"]
                await asyncio.sleep(0.15)
                self.assertEqual((await apart(api.get, "/v1/streams/v")).json["cursor"], before)
        stop = True
        accepted = [offset for task in tasks for offset in await task]
        self.assertEqual(sorted(accepted), [one["offset"] for one in api.everything("v")])


class Follow:
    """A reader of server-sent events."""

    def __init__(self, port: int, name: str, after: str | None, last_event_id: str | None = None, offset: int | None = None):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        query = f"?after={after}" if after else f"?offset={offset}" if offset is not None else ""
        last = f"Last-Event-ID: {last_event_id}\r\n" if last_event_id else ""
        self.socket.sendall(
            f"GET /v1/streams/{name}/entries{query} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{last}\r\n".encode()
        )
        self.file = self.socket.makefile("rb")
        assert b" 200 " in self.file.readline()

    def event(self) -> dict:
        event = {}
        while True:
            line = self.file.readline().decode().rstrip("\r\n")
            if not line and event:
                return event
            key, _, value = line.partition(": ")
            if key in ("id", "data"):
                event[key] = json.loads(value) if key == "data" else value

    def close(self):
        self.file.close()
        self.socket.close()
