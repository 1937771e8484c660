"""Readers that wait for entries of a stream that is deleted."""

import asyncio
import http.client
import time

from api import Api, apart
from api_case import ApiCase

ENTRIES = "/v1/streams/s/entries?after=head"


class Waiting(ApiCase):
    def poll(self):
        """A read that waits for half a minute."""
        api = Api(self.broker.port)
        answer = api.get(f"{ENTRIES}&wait=30")
        api.close()
        return answer.code

    def follow(self) -> str:
        """Server-sent events to their end, which is clean or not."""
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.port, timeout=40)
        connection.request("GET", ENTRIES, headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        try:
            return answer.read().decode()
        except http.client.IncompleteRead as cut:
            return cut.partial.decode()
        finally:
            connection.close()

    async def test_they_are_told_at_once(self):
        self.api.create("s")
        readers = [asyncio.create_task(apart(work)) for work in (self.poll, self.follow)]
        await asyncio.sleep(0.5)
        began = time.monotonic()
        self.assertEqual((await apart(self.api.call, "DELETE", "/v1/streams/s")).status, 202)
        polled, followed = await asyncio.gather(*readers)
        # Before the comment that comes every 15 s, and long before the half minute.
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(polled, (410, "stream_deleted"))
        self.assertTrue(followed.startswith(": follows\n"), followed)
