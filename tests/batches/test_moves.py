"""Cursors while rows move: into files, into the published table, out of the journal, behind a migration, past a retention."""

import json
import random

from api_case import ApiCase
from broker import A, stream

WIDER = A | {"properties": A["properties"] | {"more": {"type": ["string", "null"]}}}


def some(dice: random.Random, cursors, count: int) -> list[str]:
    """At most `count` of them."""
    return dice.sample(sorted(cursors), min(len(cursors), count))


class Moves(ApiCase):
    streams = (stream("t", A, replay_published=True),)

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.log: list[tuple[int, int]] = []  # offset and id of what is there
        self.entries: dict[int, str] = {}  # entry ids by offset
        self.cursors: dict[str, int] = {}  # every cursor ever given, and the offset after it
        self.ids = 0

    def insert(self, count: int) -> None:
        answer = self.api.insert("t", [{"id": self.ids + i, "price": 1} for i in range(count)]).json
        self.cursors[answer["startCursor"]] = answer["offset"]
        for i, one in enumerate(answer["entries"]):
            self.log.append((one["offset"], self.ids + i))
            self.entries[one["offset"]] = one["id"]
            self.cursors[one["cursor"]] = one["offset"] + 1
        self.ids += count

    def erase(self, victims: list[tuple[int, int]]) -> None:
        answer = self.api.erase("t", entryIds=[self.entries[offset] for offset, _ in victims])
        self.assertEqual((answer.status, answer.json["erased"]), (200, len(victims)), answer.body)
        self.log = [one for one in self.log if one not in victims]

    def judge(self, cursor: str, floor: int) -> bool:
        """Reads from a cursor: all that is behind it, with the same names as ever. Or it is told that rows before
        `floor` are not kept, and where to go on. Whether it was."""
        first = self.api.read("t", after=cursor)
        boundary = self.cursors[cursor]
        expired = first.code == (410, "cursor_expired")
        if expired:
            earliest = first.json["error"]["details"]["earliest"]
            self.assertLess(boundary, floor, "what is kept was refused")
            cursor, boundary = earliest, floor
        found = self.api.everything("t", after=cursor, limit=random.choice([7, 1000]))
        self.assertEqual([(one["offset"], one["entry"]["id"]) for one in found], [one for one in self.log if one[0] >= boundary])
        for one in found:
            self.assertEqual(one["id"], self.entries[one["offset"]])
            self.assertEqual(self.cursors[one["cursor"]], one["offset"] + 1)
        return expired

    async def test_whatever_moves_the_rows_a_cursor_stays(self):
        seed = random.randrange(1 << 30)
        dice = random.Random(seed)
        for step in range(16):
            with self.subTest(seed=seed, step=step):
                for _ in range(dice.randrange(1, 4)):
                    self.insert(dice.choice([1, 2, 40]))
                if dice.random() < 0.6:
                    self.erase(dice.sample(self.log, min(len(self.log), dice.choice([1, 3, 20]))))
                move = dice.choice(["flush", "evict", "kill", "nothing"])
                if move == "kill":
                    self.api.close()
                    await self.broker.restart(kill=True)
                elif move != "nothing":
                    await self.offline("flush", "t", *(["--evict"] if move == "evict" else []))
                for cursor in some(dice, self.cursors, 8):
                    self.assertFalse(self.judge(cursor, 0), "nothing was given up")
        # A migration begins a new log. What the one before has is read from the tables, if anywhere.
        before = dict(self.cursors)
        await self.migrate()
        self.insert(5)
        floor = self.log[-5][0]
        told = [self.judge(cursor, floor) for cursor in some(dice, before, 12)]
        print(f"(seed {seed}, {len(before)} cursors, {sum(told)} of {len(told)} are behind the migration)", end=" ")
        for cursor in set(self.cursors) - set(before):
            self.judge(cursor, floor)
        self.insert(3)
        self.erase(self.log[-2:-1])
        for cursor in some(dice, self.cursors, 12):
            self.judge(cursor, floor)

    async def migrate(self) -> None:
        wider = self.broker.home / "wider.json"
        wider.write_text(json.dumps(WIDER))
        self.broker.config["streams"] = [stream("t", WIDER, replay_published=True)]
        await self.offline("migrate", "t", "--schema", str(wider))
