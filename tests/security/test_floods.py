"""Strangers who take time and places without ever showing anything."""

import asyncio
import os
import time
from pathlib import Path

from broker import eventually, http
from guarded import Guarded, answers, basic, codes, request, upgrade


class Floods(Guarded):
    policy = "[limits]\nfailures = 100000\n"

    async def well(self):
        """Whoever had to wait for those who say nothing would wait for the ten seconds that they are given."""
        began = time.monotonic()
        self.assertEqual(await self.codes(upgrade("/r", basic())), [101])
        self.assertEqual((await http(self.port, "GET", "/healthz")).code, 200)
        self.assertLess(time.monotonic() - began, 9)

    async def test_slow_heads_are_given_up(self):
        """200 peers say a byte a second; others are served meanwhile, and after ten seconds they are gone."""
        peers = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(200)]
        for _, writer in peers:
            writer.write(b"GET /r HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nA: ")
        ends = [asyncio.create_task(reader.read()) for reader, _ in peers]
        for second in range(40):
            for _, writer in peers:
                try:
                    writer.write(b"a")
                except ConnectionError:
                    pass
            if second == 1:
                await self.well()
            done, left = await asyncio.wait(ends, timeout=1)
            if not left:
                break
        self.assertEqual(len(left), 0)
        # Whatever they were told, it was no 101.
        self.assertFalse(any(b" 101 " in (task.result() if not task.exception() else b"") for task in done))
        for _, writer in peers:
            writer.close()

    async def test_silent_connections_do_not_keep_others_out(self):
        peers = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(1500)]
        await self.well()
        for _, writer in peers:
            writer.close()
        await self.well()

    async def test_large_fields(self):
        for length in (20_000, 60_000, 200_000):
            found = await self.codes(upgrade("/r", {"Authorization": "Basic " + "a" * length}))
            self.assertFalse(set(found) - {400, 401, 431}, found)
            found = await self.codes(request("GET", "/stats", {"Authorization": "Bearer " + "a" * length}))
            self.assertFalse(set(found) - {400, 401, 431}, found)
        found = await self.codes(upgrade("/r", [("Authorization", "Basic eDp5")] * 60))
        self.assertFalse(set(found) - {400, 401, 431}, found)
        await self.well()

    async def test_wrong_passwords_do_not_hold_up_those_who_are_known(self):
        """Checks take the time of threads of their own: a shard goes on, and so do those who were let in before."""
        await self.well()
        took = []
        for turn in range(5):
            guesses = [asyncio.create_task(self.codes(upgrade("/r", basic("ann", f"guess {turn}-{number}")))) for number in range(100)]
            began = time.monotonic()
            self.assertEqual(await self.codes(upgrade("/r?publish", {"Authorization": f"Bearer {self.key}"})), [101])
            took.append(time.monotonic() - began)
            before = sum(guess.done() for guess in guesses)
            # One whose turn does not come in time is told so.
            found = await asyncio.gather(*guesses)
            self.assertTrue([401] in found and all(codes in ([401], [503]) for codes in found), found)
            # Soon, or at least long before its turn would have come. Again, if the machine stood still in that moment.
            if took[-1] < 2 or before < len(guesses) // 2:
                return
        self.fail(f"let in after {took} s")


class SlowChecks(Guarded):
    """One thread for passwords, and one password that keeps it for a minute and more."""

    policy = (
        '[limits]\nthreads = 1\n[[principal]]\nname = "slow"\ngrants = {}\n'
        'password = "$argon2id$v=19$m=65536,t=4000,p=1$c29tZXNhbHQ$H2Nj02lFBPRaB6dqnTiCqA"\n'
    )

    def busy_s(self, name: str) -> float:
        """How long a thread of the broker has computed."""
        for task in Path(f"/proc/{self.broker.process.pid}/task").iterdir():
            fields = (task / "stat").read_text()
            if f"({name})" in fields:
                # After the name, which may have anything in it: the state, ten more, and then ticks in the program and in the kernel.
                user, kernel = fields.rsplit(") ", 1)[1].split()[11:13]
                return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")
        return 0

    async def test_who_waits_too_long_for_a_check_is_told_so(self):
        first = asyncio.create_task(answers(self.port, request("GET", "/v1/streams", basic("slow"))))
        await eventually(lambda: self.busy_s("auth-0") > 0.1, "the thread does nothing")
        asked = [request("GET", "/v1/streams", basic()), upgrade("/r", basic()), upgrade("/r?publish", basic())]
        found = await asyncio.gather(first, *(answers(self.port, sent) for sent in asked))
        for answer in found:
            self.assertEqual(codes(answer), [503], answer)
            self.assertIn(b"retry-after: 1", answer.lower())
            self.assertIn(b"broker_unavailable", answer)
