"""How long rows are kept, set over HTTP, and reading from an offset."""

import asyncio
import json
import time

from api import until
from api_case import ApiCase
from broker import A, stream

RETENTION = "/v1/streams/{}/retention"


class Keeping(ApiCase):
    streams = (stream("t", A), stream("live", None))
    config = {"maintenance": {"clean_every": 0.5, "flush_every": 1, "publish_every": 0.5}}

    def set(self, name, body, **headers):
        return self.api.call("PUT", RETENTION.format(name), body, headers)

    async def test_it_is_seen_set_and_survives(self):
        api, kept = self.api, RETENTION.format("t")
        nothing = {"maxAgeS": None, "firstOffset": 1, "pendingFloor": None, "pendingSince": None}
        self.assertEqual(api.get(kept).json, nothing)
        self.assertEqual(self.set("t", {"maxAgeS": 86_400}).json, nothing | {"maxAgeS": 86_400})
        for body in ({}, {"maxAgeS": 0}, {"maxAgeS": -1}, {"maxAgeS": 1.5}, {"maxAgeS": "30d"}, {"maxAgeS": 10**10}, {"maxAgeS": 9, "x": 1}, [], 7):
            self.assertEqual(self.set("t", body).status, 400, body)
        self.assertEqual(self.set("t", "{").code, (400, "invalid_json"))
        self.assertEqual(self.set("t", " " * 5_000).code, (413, "request_too_large"))
        self.assertEqual(self.set("live", {"maxAgeS": 9}).code, (409, "stream_not_durable"))
        self.assertEqual(self.set("nope", {"maxAgeS": 9}).code, (404, "stream_not_found"))
        self.assertEqual(api.get(RETENTION.format("nope")).code, (404, "stream_not_found"))
        # A page of another site may not.
        self.assertEqual(self.set("t", {"maxAgeS": 9}, Origin="http://elsewhere.example").code, (403, "forbidden"))
        self.assertEqual((api.call("DELETE", kept).status, api.call("DELETE", kept).headers["allow"]), (405, "GET, HEAD, PUT"))
        await self.broker.restart(kill=True)
        api.close()
        self.assertEqual(api.get(kept).json["maxAgeS"], 86_400)
        self.assertIsNone(self.set("t", {"maxAgeS": None}).json["maxAgeS"])

    async def test_what_is_too_old_is_cut_off_soon(self):
        api = self.api
        row = {"id": 1, "price": 1.5, "name": None}
        self.assertEqual(api.insert("t", [row] * 5).status, 200)
        until(lambda: b'published_end_offset{stream="t"} 6' in api.get("/metrics").body)
        time.sleep(2)
        self.assertEqual(self.set("t", {"maxAgeS": 1}).status, 200)
        until(lambda: api.get(RETENTION.format("t")).json["pendingFloor"] == 6)
        kept = api.get(RETENTION.format("t")).json
        self.assertEqual(kept["firstOffset"], 6)
        self.assertLess(abs(time.time() - time.mktime(time.strptime(kept["pendingSince"][:19], "%Y-%m-%dT%H:%M:%S")) + time.timezone), 120)
        self.assertEqual(api.insert("t", [row]).json["offset"], 6)

    async def test_reading_begins_at_an_offset(self):
        api = self.api
        api.create("events")
        made = api.insert("events", [{"n": number} for number in range(1, 11)]).json
        offsets = lambda **query: [entry["offset"] for entry in api.read("events", **query).json["entries"]]
        self.assertEqual(offsets(offset=4), list(range(4, 11)))
        self.assertEqual(offsets(offset=0), list(range(1, 11)))
        self.assertEqual(offsets(offset=4, limit=2), [4, 5])
        self.assertEqual(offsets(offset=11), [])
        self.assertEqual(api.read("events", offset=4, limit=2).json["cursor"], made["entries"][4]["cursor"])
        api.erase("events", entryIds=[made["entries"][number - 1]["id"] for number in (4, 5)])
        self.assertEqual(offsets(offset=4, limit=2), [6, 7])
        for query in ({"offset": 13}, {"offset": "x"}, {"offset": -1}, {"offset": ""}, {"offset": 2**63}, {"offset": 1, "after": "head"}):
            self.assertEqual(api.read("events", **query).code, (400, "invalid_request"), query)
        answer = await asyncio.to_thread(lambda: api.get("/v1/streams/events/entries", {"accept": "application/x-ndjson"}, offset=9))
        self.assertEqual([json.loads(line)["offset"] for line in answer.body.splitlines()], [9, 10])
