"""A client of the batch API that does nothing by itself, and what several tests need."""

import asyncio
import http.client
import json
import time
from urllib.parse import quote, urlencode

ENTRIES = "/v1/streams/{}/entries"


class Answer:
    def __init__(self, status: int, headers, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """Status and the word of the error."""
        error = self.json.get("error") if self.body[:1] == b"{" else None
        return (self.status, error and error["code"])


class Api:
    """One keep-alive connection."""

    def __init__(self, port: int, timeout: float = 60):
        self.port, self.timeout = port, timeout
        self.connection = None

    def call(self, method: str, path: str, body=None, headers=None, **query) -> Answer:
        if query:
            path += "?" + urlencode(query)
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        for attempt in (0, 1):
            fresh = self.connection is None
            if fresh:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
            try:
                self.connection.request(method, path, body, headers or {})
                response = self.connection.getresponse()
                return Answer(response.status, response.headers, response.read())
            except Exception:
                self.close()
                # An idle connection may have been closed; a fresh one that fails is an answer.
                if fresh or attempt or method != "GET":
                    raise
        raise AssertionError

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def get(self, path: str, headers=None, **query) -> Answer:
        return self.call("GET", path, None, headers, **query)

    def create(self, name: str, **members) -> Answer:
        return self.call("POST", "/v1/streams", {"name": name, **members})

    def insert(self, name: str, entries, **members) -> Answer:
        return self.call("POST", ENTRIES.format(quote(name)), {"entries": entries, **members})

    def read(self, name: str, **query) -> Answer:
        return self.get(ENTRIES.format(quote(name)), **query)

    def erase(self, name: str, **members) -> Answer:
        return self.call("POST", f"/v1/streams/{quote(name)}/erasures", members)

    def everything(self, name: str, after=None, limit=1000) -> list:
        """All entries after a cursor, page by page."""
        found = []
        while True:
            query = {"limit": limit} | ({"after": after} if after else {})
            answer = self.read(name, **query)
            assert answer.status == 200, answer.body
            page = answer.json
            found += page["entries"]
            after = page["cursor"]
            if page["cursor"] == page["head"]:
                return found


def until(condition, timeout: float = 60):
    """Waits for a condition; its value."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


async def apart(work, *args, **kwargs):
    return await asyncio.to_thread(work, *args, **kwargs)
