"""The client's own machinery for crashes (outbox, inbox, cursor) while the broker is killed again and again."""

import asyncio
import contextlib
import logging
import random
import tempfile
import unittest
from pathlib import Path

import streamcast as sc
from websockets.exceptions import InvalidMessage

from broker import A, Broker, Case, stream

RETRY = dict(backoff=(0.02, 0.05, 0.1), poll_every=0.05)
KILLS = 10
ROWS = 1500


def row(who: int, i: int) -> dict:
    return {"id": i, "price": float(who), "name": f"w{who}"}


async def supervised(session) -> None:
    """Run a session to its end, starting it again when the client has stopped for good.

    It does so when a connection ends between TCP's handshake and HTTP's answer, which a kill at that very moment
    makes happen with any server (wire.md section 9.3). Everything else it has to get over by itself.
    """
    while True:
        try:
            return await session()
        except InvalidMessage:
            await asyncio.sleep(0.05)


class Kills(Case):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        declared = {"max_replay": None}
        self.broker = Broker(stream("x", A, exactly_once=True, **declared), stream("r", A, **declared))
        await self.broker.start()
        self.scratch = tempfile.TemporaryDirectory()
        self.random = random.Random(11)
        logging.getLogger("streamcast").setLevel(logging.CRITICAL)

    async def asyncTearDown(self):
        await self.broker.__aexit__()
        self.scratch.cleanup()

    def path(self, name: str) -> Path:
        return Path(self.scratch.name) / name

    async def storm(self, kills: int = KILLS) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.random.uniform(0.1, 0.5))
            await self.broker.restart(kill=True)

    async def outbox(self, who: int) -> None:
        """One writer with a store of its own; a few rows at a time, so that the kills fall between them."""
        store = await sc.SqliteStore.open(self.path(f"out{who}.db"))
        stored = 0

        async def session() -> None:
            nonlocal stored
            async with sc.outbox(self.broker.uri("x"), publisher=f"w{who}", store=store, **RETRY) as out:
                while stored < ROWS:
                    async with store.transaction() as tx:
                        for i in range(stored, stored + 25):
                            await out.send(row(who, i), tx=tx)
                    stored += 25
                    await asyncio.sleep(0.03)
                await out.flush(timeout=120)

        await supervised(session)
        await store.close()

    async def inbox(self, name: str, want: int) -> list[tuple[int, dict]]:
        store = await sc.SqliteStore.open(self.path(f"{name}.db"))
        got: list[tuple[int, dict]] = []

        async def session() -> None:
            # A position that is in the store may not be given again.
            start = {} if got else {"offset": sc.EARLIEST}
            async with sc.inbox(self.broker.uri("x"), subscriber=name, store=store, **start, **RETRY) as box:
                while len(got) < want:
                    offset, _, value, _ = await box.recv()
                    await box.commit()
                    got.append((offset, value))

        async with asyncio.timeout(240):
            await supervised(session)
        await store.close()
        return got

    async def test_outboxes_and_inboxes_exactly_once(self):
        writers = [asyncio.create_task(self.outbox(who)) for who in range(3)]
        readers = [asyncio.create_task(self.inbox(f"reader{k}", 3 * ROWS)) for k in range(2)]
        await self.storm()
        await asyncio.gather(*writers)
        log = await self.broker.log_of("x")
        self.assertEqual([offset for offset, _, _ in log], list(range(1, 3 * ROWS + 1)))
        for who in range(3):
            ids = [value["id"] for _, _, value in log if value["name"] == f"w{who}"]
            self.assertEqual(ids, list(range(ROWS)), f"writer {who}")
        for got in await asyncio.gather(*readers):
            self.assertEqual(got, [(offset, value) for offset, _, value in log])

    async def test_publisher_resends_what_was_not_acked(self):
        """publish(publisher=) by hand: after each kill go on from the mark in the greeting."""
        done, storm = 0, asyncio.create_task(self.storm(6))
        while done < 5000:
            try:
                async with sc.publish(self.broker.uri("x"), publisher="hand") as pub:
                    mark = pub.info.publisher.last_seq
                    self.assertGreaterEqual(mark, done, "the mark went back behind an ack")
                    futures = []
                    for seq in range(mark + 1, 5001):
                        futures.append(await pub.submit(row(0, seq), seq=seq))
                        if len(futures) >= 32:
                            await futures.pop(0)
                            done = seq - len(futures)
                        if not storm.done():
                            await asyncio.sleep(0.0005)
                    for future in futures:
                        await future
                    done = 5000
            except (OSError, sc.StreamcastError, Exception) as error:
                if isinstance(error, AssertionError):
                    raise
                await asyncio.sleep(0.05)
        await storm
        log = await self.broker.log_of("x")
        self.assertEqual([value["id"] for _, _, value in log], list(range(1, 5001)))

    async def test_cursor_over_kills(self):
        """A consumer that only keeps a cursor file misses nothing and repeats only what it had not committed."""
        path, seen = self.path("cursor"), []

        async def publish():
            sent = 0
            while sent < 2000:
                with contextlib.suppress(Exception):
                    async with sc.publish(self.broker.uri("r")) as pub:
                        while sent < 2000:
                            await pub.send_many([row(1, sent + k) for k in range(20)])
                            sent += 20
                            await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)

        async def consume():
            while len(seen) < 2000:
                with contextlib.suppress(Exception):
                    async with sc.connect(self.broker.uri("r"), cursor=path) as sub:
                        while len(seen) < 2000:
                            seen.append((await asyncio.wait_for(sub.recv(), 5))[0])
                            sub.commit()
                await asyncio.sleep(0.05)

        # The cursor's first connection starts at the live end, so it has to be there before the first row.
        async with sc.connect(self.broker.uri("r"), cursor=path) as sub, sc.publish(self.broker.uri("r")) as pub:
            await pub.send(row(1, 0))
            seen.append((await sub.recv())[0])
            sub.commit()
        async with asyncio.timeout(240):
            await asyncio.gather(publish(), consume(), self.storm(6))
        self.assertEqual(seen, list(range(1, len(seen) + 1)))


if __name__ == "__main__":
    unittest.main()
