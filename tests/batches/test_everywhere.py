"""Erasures by a filter find rows wherever they are: in the journal, in the table alone, in logs that are over."""

import json
import time

import streamcast
from api_case import ApiCase
from broker import A, PATIENCE_S, stream

WIDER = A | {"properties": A["properties"] | {"more": {"type": ["string", "null"]}}}


class Everywhere(ApiCase):
    streams = (stream("t", A),)

    def insert(self, *names):
        entries = [{"id": self.next + i, "price": 1, "name": name} for i, name in enumerate(names)]
        self.assertEqual(self.api.insert("t", entries).status, 200)
        self.next += len(names)

    def erase(self, expected, **where):
        answer = self.api.erase("t", where=where)
        self.assertEqual((answer.status, answer.json.get("erased")), (200, expected), answer.body)

    async def in_tables(self, wanted) -> None:
        """Waits until the tables have the rows with these ids and no others."""
        hint = f"file://{self.broker.root}/t/t.metadata/version-hint.text"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                async with await streamcast.Stream.snapshot(hint, memory_cache=False) as snapshot:
                    found = sorted((await snapshot.scan(columns=["id"]).read_all())["id"].to_pylist())
            except streamcast.SnapshotUnavailable as changed:
                # The document was read before the rows went and the table after it: the client asks to read again.
                found = str(changed)
            if found == wanted or time.monotonic() > deadline:
                return self.assertEqual(found, wanted)

    async def test_a_filter_reaches_every_row(self):
        self.next = 0
        self.insert("a", "b", "a", None)
        await self.offline("flush", "t", "--evict")
        self.insert("a", "b")
        # Rows 0 to 3 are in the table alone, and no replay gives them.
        self.erase(3, name="a")
        self.erase(0, name="a")
        await self.offline("flush", "t")
        await self.in_tables([1, 3, 5])
        wider = self.broker.home / "wider.json"
        wider.write_text(json.dumps(WIDER))
        self.broker.config["streams"] = [stream("t", WIDER)]
        await self.offline("migrate", "t", "--schema", str(wider))
        self.insert("b", "c")
        self.assertEqual([entry["entry"]["id"] for entry in self.api.everything("t")], [6, 7])
        # The log that is over lacks the column, so it is null there.
        self.erase(1, more=None, id=[3, 99])
        self.erase(3, name="b")
        self.erase(0, name="b", more="x")
        await self.offline("flush", "t")
        await self.in_tables([7])
        self.assertEqual(self.api.get("/v1/streams/t").json["entryCount"], 1)
        # Nothing is left to replay, and reading from the origin is no error.
        await self.offline("flush", "t", "--evict")
        self.assertEqual((self.api.read("t").status, self.api.read("t").json["entries"]), (200, []))
        self.erase(1, name="c")
        await self.offline("flush", "t")
        await self.in_tables([])
