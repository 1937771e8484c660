"""Readers that wait for entries of a stream that is deleted or stopped."""

import asyncio
import http.client
import threading
import time

from api import Api, apart, until
from api_case import ApiCase
from broker import A, PATIENCE_S

ENTRIES = "/v1/streams/s/entries?after=head"


class Readers(ApiCase):
    def poll(self, reached: threading.Event):
        """A read that waits for half a minute."""
        api = Api(self.broker.port)
        # The broker has the connection then: what follows on it is read at once.
        self.assertEqual(api.get("/healthz").status, 200)
        reached.set()
        answer = api.get(f"{ENTRIES}&wait=30")
        api.close()
        return answer.code

    def follow(self, reached: threading.Event) -> str:
        """Server-sent events to their end, which is clean or not."""
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.port, timeout=PATIENCE_S)
        connection.request("GET", ENTRIES, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        first = b""
        try:
            first = answer.readline()
            reached.set()
            return (first + answer.read()).decode()
        except http.client.IncompleteRead as cut:
            return (first + cut.partial).decode()
        finally:
            connection.close()

    async def told(self, status: int, code: str, ending):
        """What readers hear who wait while `ending` ends the stream."""
        there = [threading.Event(), threading.Event()]
        readers = [asyncio.create_task(apart(work, reached)) for work, reached in zip((self.poll, self.follow), there)]
        for reached in there:
            self.assertTrue(await apart(reached.wait, PATIENCE_S), "not answered")
        await asyncio.sleep(0.5)
        began = time.monotonic()
        await apart(ending)
        polled, followed = await asyncio.gather(*readers)
        # Not with the comment that comes every 15 s, and before the half minute is over.
        self.assertNotIn("\n:", followed)
        self.assertLess(time.monotonic() - began, 25)
        self.assertEqual(polled, (status, code))
        self.assertTrue(followed.startswith(": follows\n"), followed)
        self.assertIn(f'event: error\ndata: {{"error":{{"code":"{code}"', followed)


class Deleted(Readers):
    async def test_they_are_told_at_once(self):
        self.api.create("s")
        await self.told(410, "stream_deleted", lambda: self.assertEqual(self.api.call("DELETE", "/v1/streams/s").status, 202))


class Stopped(Readers):
    settings = {"registry.profiles.local.revision": "1"}

    def control(self, body: dict, *more: str, **fields: str) -> None:
        """A change of the control API, carried out."""
        target = "/".join(("/control/v1/streams/s", *more))
        headers = {"Content-Type": "application/json", "Idempotency-Key": str(time.monotonic_ns())}
        answer = self.api.call("PUT", target, body, headers | {name.replace("_", "-"): value for name, value in fields.items()})
        self.assertEqual(answer.status, 202, answer.body)
        until(lambda: self.api.get(answer.headers["location"]).json["status"] == "succeeded")

    async def test_they_are_told_at_once(self):
        declaration = {"schema": A, "storage_profile": "local", "initialization": "create_if_absent"}
        self.control(declaration, If_None_Match="*")
        self.control({"state": "serving"}, "desired", If_Match='"1"')
        self.assertEqual(self.api.insert("s", [{"id": 1, "price": 1}]).status, 200)
        await self.told(503, "unavailable", lambda: self.control({"state": "stopped"}, "desired", If_Match='"2"'))
        # Whoever comes back finds it again, once it is served.
        self.assertEqual(self.api.get("/v1/streams/s/entries").code, (404, "stream_not_found"))
        self.control({"state": "serving"}, "desired", If_Match='"3"')
        self.assertEqual(len(self.api.everything("s")), 1)
