"""One story through every call of the official client, on a stream of trades."""

import asyncio
import tempfile
import unittest
from pathlib import Path

import streamcast as sc

from broker import Broker, Case, stream

TRADES = {
    "type": "object",
    "properties": {
        "symbol": {"type": "string"},
        "price": {"type": "number"},
        "size": {"type": "integer"},
        "venue": {"type": ["string", "null"]},
        "raw": {"type": ["string", "null"], "contentEncoding": "base16"},
    },
    "required": ["symbol", "price", "size"],
}


def trade(i: int) -> dict:
    symbol, venue = ("AAA", "BBB", "CCC")[i % 3], (None, "X")[i % 2]
    return {"symbol": symbol, "price": i + 0.25, "size": i, "venue": venue, "raw": bytes([i % 256])}


async def refusal(sending) -> Exception | None:
    """The exception of a send. (assertRaises would clear the client's frames, and with them its reader.)"""
    try:
        await sending
    except sc.StreamcastError as error:
        return error
    return None


class Calls(Case):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.broker = Broker(stream("trades", TRADES), stream("orders", TRADES, exactly_once=True))
        await self.broker.start()
        self.uri = self.broker.uri("trades")
        self.orders = self.broker.uri("orders")
        self.scratch = tempfile.TemporaryDirectory()

    async def asyncTearDown(self):
        self.scratch.cleanup()
        await self.broker.__aexit__()

    async def test_send_submit_and_send_many(self):
        async with sc.connect(self.uri) as live, sc.publish(self.uri) as pub:
            self.assertEqual(await pub.send(trade(1)), 1)
            futures = [await pub.submit(trade(i)) for i in range(2, 402)]
            self.assertEqual([await future for future in futures], list(range(2, 402)))
            self.assertEqual(await pub.send_many([trade(i) for i in range(402, 1402)]), list(range(402, 1402)))
            for i in range(1, 1402):
                offset, stamp, row = await live.recv()
                self.assertEqual((offset, row), (i, trade(i)))
                self.assertIsInstance(stamp, int)

    async def test_replay_equals_live(self):
        async with sc.connect(self.uri) as live, sc.publish(self.uri) as pub:
            await pub.send_many([trade(i) for i in range(1, 201)])
            first = [await live.recv() for _ in range(200)]
        async with sc.connect(self.uri, offset=sc.EARLIEST) as replay:
            self.assertEqual([await replay.recv() for _ in range(200)], first)

    async def test_where_live_and_replayed(self):
        where = {"symbol": ["AAA", "BBB"], "venue": None}
        want = [i for i in range(1, 301) if trade(i)["symbol"] != "CCC" and trade(i)["venue"] is None]
        async with sc.connect(self.uri, where=where) as live, sc.publish(self.uri) as pub:
            for start in range(1, 301, 50):
                await pub.send_many([trade(i) for i in range(start, start + 50)])
            self.assertEqual([(await live.recv())[0] for _ in want], want)
        async with sc.connect(self.uri, where=where, offset=1) as replay:
            self.assertEqual([(await replay.recv())[0] for _ in want], want)
        async with sc.connect(self.uri, where={"raw": "0A"}, offset=1) as replay:
            self.assertEqual((await replay.recv())[0], 10)

    async def test_cursor_resumes_where_the_consumer_was(self):
        path = Path(self.scratch.name) / "cursor"
        async with sc.publish(self.uri) as pub:
            seen = []
            async with sc.connect(self.uri, cursor=path) as sub:
                await pub.send_many([trade(i) for i in range(1, 101)])
                for _ in range(30):
                    seen.append((await sub.recv())[0])
                sub.commit()
            await pub.send_many([trade(i) for i in range(101, 151)])
        async with sc.connect(self.uri, cursor=path) as sub:
            while len(seen) < 150:
                seen.append((await sub.recv())[0])
        self.assertEqual(seen, list(range(1, 151)))

    async def test_many_publishers_and_subscribers(self):
        """Ten of each at the same time: one order, the same for everybody."""

        async def publish(k: int):
            async with sc.publish(self.uri) as pub:
                return [await future for future in [await pub.submit(trade(k * 1000 + i)) for i in range(200)]]

        async def subscribe(where=None):
            async with sc.connect(self.uri, offset=1, where=where) as sub:
                return [await sub.recv() for _ in range(2000)]

        readers = [asyncio.create_task(subscribe()) for _ in range(10)]
        acks = await asyncio.gather(*(publish(k) for k in range(10)))
        for mine in acks:
            self.assertEqual(mine, sorted(mine))
        self.assertEqual(sorted(offset for mine in acks for offset in mine), list(range(1, 2001)))
        views = await asyncio.gather(*readers)
        for view in views[1:]:
            self.assertEqual(view, views[0])
        for k, mine in enumerate(acks):
            sizes = [row["size"] for _, _, row in views[0] if row["size"] // 1000 == k]
            self.assertEqual(sizes, [k * 1000 + i for i in range(200)])

    async def test_exactly_once_numbers(self):
        async with sc.publish(self.orders, publisher="desk/1 é") as pub:
            self.assertEqual(await pub.send_many([trade(i) for i in range(1, 51)], seq=1), list(range(1, 51)))
            self.assertEqual(await pub.send(trade(50), seq=50), 50)
            gap = await refusal(pub.send(trade(60), seq=60))
            self.assertIsInstance(gap, sc.SequenceGap)
            self.assertEqual((gap.expected, gap.got), (51, 60))
        async with sc.publish(self.orders, publisher="desk/1 é") as pub:
            self.assertEqual((pub.info.publisher.last_seq, pub.info.publisher.last_offset), (50, 50))

    async def test_refused_rows_name_their_column(self):
        async with sc.publish(self.uri) as pub:
            bad = {"symbol": "A", "price": "much", "size": 1}
            strange = {"symbol": "A", "price": 1.5, "size": 1, "colour": "red"}
            for row, column in ((bad, "price"), (strange, "colour")):
                refused = await refusal(pub.send(row))
                self.assertIsInstance(refused, sc.Rejected)
                self.assertIn(column, str(refused))
            self.assertEqual(await pub.send(trade(1)), 1)


if __name__ == "__main__":
    unittest.main()
