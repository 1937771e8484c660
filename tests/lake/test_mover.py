"""What is acknowledged is in the journal or in a file, once; the table is readable at every moment."""

import asyncio
import os
import random
import re
import sys
import threading
import time
import unittest
from pathlib import Path

import served
from served import PATIENCE, Served, offsets_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

KILLS = int(os.environ.get("KILLS", "12"))


def dense(offsets: list[int]) -> bool:
    return offsets == list(range(1, len(offsets) + 1))


def until(condition, what: str, patience: float = PATIENCE) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < patience, f"{what} after {patience} s"
        time.sleep(0.1)


def s3_head(endpoint: str, stop_timeout_s: int = 60) -> str:
    """Top-level keys first: the rest is a table."""
    return f'stop_timeout_s = {stop_timeout_s}\n[s3]\nendpoint = "{endpoint}"\nregion = "us-east-1"\npath_style = true\n'


def s3_env() -> dict:
    import s3

    return {"AWS_ACCESS_KEY_ID": s3.ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": s3.SECRET_KEY}


class Case(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        # Debugging the loop would cost more than what is tested.
        asyncio.get_running_loop().set_debug(False)


class Kills(Case):
    async def test_killed_while_rows_move(self):
        """kill -9 in the middle of sealing, merging and publishing, again and again."""
        broker = Served()
        with broker:
            await self.killed(broker, broker.published, KILLS)

    async def test_killed_while_rows_go_to_a_bucket(self):
        """The same with the table in a bucket."""
        import s3

        with s3.Server("tables") as store:
            with Served(head=s3_head(store.endpoint), stream='published = "s3://tables/pre"', env=s3_env()) as broker:
                published = lambda: offsets_of("s3://tables/pre/t/t", store.pyiceberg())  # noqa: E731
                await self.killed(broker, published, KILLS // 2)

    async def killed(self, broker, published_now, kills):
        chance = random.Random(int.from_bytes(os.urandom(4), "big"))
        acknowledged = 0
        for _ in range(kills):
            async def flood():
                nonlocal acknowledged
                try:
                    while True:
                        acknowledged = await broker.publish(acknowledged, 200, 50)
                except (OSError, served.websockets.WebSocketException):
                    pass

            flooding = asyncio.create_task(flood())
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            broker.kill()
            await flooding
            published = await asyncio.to_thread(published_now)
            self.assertTrue(dense(published), "the table has a hole, or an offset twice")
            await asyncio.to_thread(broker.start)
            rows = await broker.replay()
            self.assertTrue(dense([offset for offset, _ in rows]), "a replay has a hole, or an offset twice")
            ids = [each for _, each in rows]
            # A frame whose answer was lost may be there; it was sent again then, and is there twice.
            self.assertTrue(set(range(acknowledged)) <= set(ids), "an acknowledged row is missing")
            self.assertLessEqual(len(published), len(rows))
            acknowledged = max(ids, default=-1) + 1
        await asyncio.to_thread(broker.stop)
        published = await asyncio.to_thread(published_now)
        self.assertEqual([offset for offset, _ in rows], published[: len(rows)])
        self.assertTrue(dense(published))


class Reading(Case):
    async def test_readable_at_every_moment(self):
        """A reader that opens the table again and again never sees a hole, and it only grows."""
        with Served() as broker:
            wrong, lengths, done = [], [], threading.Event()

            def watch():
                while not done.is_set():
                    offsets = broker.published()
                    if not dense(offsets) or (lengths and len(offsets) < lengths[-1]):
                        wrong.append(offsets[-5:])
                    lengths.append(len(offsets))

            watcher = threading.Thread(target=watch)
            watcher.start()
            last = await broker.publish(0, 20_000)
            await asyncio.to_thread(until, lambda: lengths and lengths[-1] == last, "rows are not in the table")
            done.set()
            watcher.join()
            self.assertEqual(wrong, [])
            self.assertGreater(len(set(lengths)), 2)
            until(lambda: broker.metrics()["streamcast_evicted_batches_total"] > 0, "nothing has left the journal")
            rows = await broker.replay()
            self.assertEqual(rows, [(each + 1, each) for each in range(last)])
            self.assertEqual(await broker.replay(15_001), rows[15_000:])

    async def test_the_table_trails_by_little_and_files_stay_few(self):
        """Under load the table has every row after `flush_every` and 20 s; journal and files are bounded."""
        lake = "flush_every_s = 2, publish_every_s = 1, compact_every_s = 1, clean_every_s = 1, compact_min_files = 4, " \
               "target_seal_rows = 20000"
        with Served(lake) as broker:
            began, last, worst, files, journal = time.monotonic(), 0, 0.0, 0, 0
            while time.monotonic() - began < 12:
                last = await broker.publish(last, 10_000, 1_000)
                # At most 100,000 rows a second: five files, as a stream of the usual settings has in ten.
                await asyncio.sleep(max(0.0, began + last / 100_000 - time.monotonic()))
                now = await asyncio.to_thread(broker.metrics)
                worst = max(worst, now["streamcast_stream_unpublished_seconds"])
                files = max(files, now["streamcast_stream_sealed_files"])
                journal = max(journal, now["streamcast_journal_bytes"])
            self.assertLess(worst, 22)
            self.assertLess(files, 40)
            self.assertLess(journal, 64 << 20)
            await asyncio.to_thread(broker.stop)
            self.assertEqual(len(await asyncio.to_thread(broker.published)), last)


OUTAGE_S = float(os.environ.get("OUTAGE_S", "10"))


class Outage(Case):
    async def test_the_store_is_away_and_comes_back(self):
        """Capture, fan-out and replay go on without the store, the lag shows, nothing piles up, and everything follows. A
        stop meanwhile keeps to its time and says what is left."""
        import s3

        with s3.Server("tables") as store, s3.FaultProxy(store.endpoint) as proxy:
            with Served(head=s3_head(proxy.endpoint, 5), stream='published = "s3://tables/pre"', env=s3_env()) as broker:
                last = await broker.publish(0, 3_000)
                published = "streamcast_stream_published_end_offset"
                await asyncio.to_thread(until, lambda: broker.metrics()[published] == last + 1, "nothing is published")
                proxy.fail("refuse")
                went, live = last, asyncio.create_task(broker.live(OUTAGE_S))
                began, lag = time.monotonic(), 0
                while time.monotonic() - began < OUTAGE_S:
                    last = await broker.publish(last, 1_000)
                    now = await asyncio.to_thread(broker.metrics)
                    lag = max(lag, now["streamcast_stream_unpublished_seconds"])
                    # The subscriber shares this thread.
                    await asyncio.sleep(max(0.0, began + (last - went) / 8_000 - time.monotonic()))
                seen = await live
                self.assertEqual(seen, list(range(seen[0], seen[0] + len(seen))))
                self.assertGreater(seen[-1], went + (last - went) // 2, "the fan-out stood still")
                self.assertGreater(lag, OUTAGE_S / 2)
                # Sealed and merged here, and out of the journal, although the table gets nothing.
                few = lambda now: now["streamcast_stream_sealed_files"] < 60 and now["streamcast_journal_bytes"] < 64 << 20  # noqa: E731
                await asyncio.to_thread(until, lambda: few(broker.metrics()), "files or journal pile up")
                failing = lambda: broker.metrics()["streamcast_stream_table_failing"] == 1  # noqa: E731
                await asyncio.to_thread(until, failing, "the outage does not show", 120)
                self.assertEqual(await broker.replay(), [(each + 1, each) for each in range(last)])
                stopping = time.monotonic()
                await asyncio.to_thread(broker.stop)
                self.assertLess(time.monotonic() - stopping, 5 + 15)
                left = re.search(r'not in the table yet.*"unsealed_rows":(\d+),"unpublished_rows":(\d+)', broker.log())
                self.assertTrue(left, broker.log()[-2000:])
                self.assertEqual((int(left[1]), int(left[2])), (0, last - went))
                # It starts without the store as well.
                await asyncio.to_thread(broker.start)
                last = await broker.publish(last, 100)
                proxy.heal()
                await asyncio.to_thread(until, lambda: broker.metrics()[published] == last + 1, "it does not catch up", 120)
                properties = store.pyiceberg()
                offsets = await asyncio.to_thread(offsets_of, "s3://tables/pre/t/t", properties)
                self.assertEqual(offsets, list(range(1, last + 1)))
                self.assertNotIn(s3.SECRET_KEY, broker.log())


if __name__ == "__main__":
    unittest.main()
