"""Retries of what was done before the stream became another one: they are told what was done."""

import json

from api_case import ApiCase
from broker import A, stream

NARROWER = {"type": "object", "properties": {key: A["properties"][key] for key in ("id", "price")}, "required": ["id", "price"]}


class Retries(ApiCase):
    streams = (stream("t", A),)

    def told_again(self, first, again) -> None:
        self.assertEqual((first.status, again.status), (200, 200), (first.body, again.body))
        self.assertEqual(again.json | {"purgedAt": None}, first.json | {"duplicate": True, "purgedAt": None})

    async def test_a_validator_that_is_newer_does_not_judge_them(self):
        api = self.api
        api.create("v")
        made = [api.insert("v", [{"n": 1}], idempotencyKey="all"), api.insert("v", [{"n": 1}], idempotencyKey="few", returnEntryIds=False)]
        self.assertNotIn("entries", made[1].json)
        api.call("PATCH", "/v1/streams/v", {"validator": "entry.n > 5"})
        self.told_again(made[0], api.insert("v", [{"n": 1}], idempotencyKey="all"))
        self.told_again(made[1], api.insert("v", [{"n": 1}], idempotencyKey="few", returnEntryIds=False))
        # Another body under the key is that first of all, whether it fits or not.
        for n in (2, 7):
            self.assertEqual(api.insert("v", [{"n": n}], idempotencyKey="all").code, (409, "idempotency_key_reused"))
        self.assertEqual(api.insert("v", [{"n": 1}], idempotencyKey="new").code, (422, "validation_failed"))
        # A large one is signed elsewhere.
        large = [{"n": 6, "text": "x" * 1000} for _ in range(100)]
        first = api.insert("v", large, idempotencyKey="large")
        api.call("PATCH", "/v1/streams/v", {"validator": "entry.n > 6"})
        self.told_again(first, api.insert("v", large, idempotencyKey="large"))
        self.assertEqual(len(api.everything("v")), 102)

    async def test_nor_do_other_columns_and_the_end_of_the_stream(self):
        api, row = self.api, {"id": 1, "price": 1, "name": "a"}
        made = api.insert("t", [row], idempotencyKey="k")
        erased = api.erase("t", where={"name": "a"}, idempotencyKey="k")
        narrower = self.broker.home / "narrower.json"
        narrower.write_text(json.dumps(NARROWER))
        self.broker.config["streams"] = [stream("t", NARROWER)]
        await self.offline("migrate", "t", "--schema", str(narrower))
        for life in ("migrated", "retired"):
            with self.subTest(life):
                self.told_again(made, api.insert("t", [row], idempotencyKey="k"))
                self.told_again(erased, api.erase("t", where={"name": "a"}, idempotencyKey="k"))
                self.assertEqual(api.erase("t", where={"name": "b"}, idempotencyKey="k").code, (409, "idempotency_key_reused"))
                self.assertEqual(api.erase("t", where={"name": "b"}, idempotencyKey="new").code, (400, "invalid_where"))
                fits = {"id": 2, "price": 1}
                refused = (422, "validation_failed") if life == "migrated" else (409, "stream_retired")
                self.assertEqual(api.insert("t", [row], idempotencyKey="new").code, refused)
                self.assertEqual(api.insert("t", [fits], idempotencyKey="k").code, (409, "idempotency_key_reused"))
            if life == "migrated":
                await self.offline("retire", "t")
