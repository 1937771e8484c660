"""Readers of a stream with many commits a second, who are served in rounds: everybody gets every entry, once, in order."""

import asyncio
import json

from api import apart
from api_case import ApiCase
from broker import PATIENCE_S

ENTRIES = 300
READERS = 24
PATH = "/v1/streams/busy/entries"


async def by_events(port: int) -> list[int]:
    """The offsets that come as events, up to the last entry; the connection is dropped and resumed on the way."""
    found, last = [], None
    while len(found) < ENTRIES:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        resume = f"Last-Event-ID: {last}\r\n" if last else ""
        writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n{resume}\r\n".encode())
        until = len(found) + ENTRIES // 3
        while len(found) < min(until, ENTRIES):
            line = await reader.readline()
            if line.startswith(b"id: "):
                last = line[4:].strip().decode()
            elif line.startswith(b"data: "):
                found.append(json.loads(line[6:])["offset"])
        writer.close()
    return found


async def by_pages(port: int) -> list[int]:
    """The offsets that come in pages, each of which waits for its first entry."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    found, after = [], ""
    while len(found) < ENTRIES:
        writer.write(f"GET {PATH}?wait=20&after={after} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        page = json.loads(await reader.readexactly(length))
        found += [one["offset"] for one in page["entries"]]
        after = page["cursor"] or ""
    writer.close()
    return found


class Rounds(ApiCase):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.api.create("busy")

    def insert_all(self) -> None:
        for number in range(ENTRIES):
            self.assertEqual(self.api.insert("busy", [{"n": number}], returnEntryIds=False).status, 200)

    async def test_everybody_gets_every_entry(self):
        kinds = [by_events, by_pages] * (READERS // 2)
        readers = [asyncio.create_task(kind(self.broker.port)) for kind in kinds]
        await apart(self.insert_all)
        for found in await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S):
            self.assertEqual(found, list(range(1, ENTRIES + 1)))

    async def test_who_asks_after_a_change_sees_it(self):
        """A round is as of its own moment, and never of one before somebody asked."""
        readers = [asyncio.create_task(by_pages(self.broker.port)) for _ in range(4)]

        def change_and_look() -> None:
            inserted = None
            for number in range(ENTRIES):
                before = inserted["committedCursor"] if inserted else ""
                inserted = self.api.insert("busy", [{"n": number}]).json
                if number % 20 == 0:
                    for wait in (0, 5):
                        page = self.api.read("busy", after=before, wait=wait).json
                        self.assertEqual([one["offset"] for one in page["entries"]], [inserted["offset"]])

        await apart(change_and_look)
        await asyncio.wait_for(asyncio.gather(*readers), PATIENCE_S)

    async def test_nobody_is_given_what_was_erased(self):
        erased = set()
        seen_after = []

        def erase_and_look() -> None:
            cursor = ""
            for number in range(150):
                answer = self.api.insert("busy", [{"n": number}]).json
                entry = answer["entries"][0]
                if number % 5 == 0:
                    self.assertEqual(self.api.erase("busy", entryIds=[entry["id"]]).json["erased"], 1)
                    erased.add(entry["offset"])
                page = self.api.read("busy", after=cursor, wait=5 if number % 5 else 0).json
                seen_after.extend(one["offset"] for one in page["entries"])
                cursor = page["cursor"] or ""

        await apart(erase_and_look)
        self.assertEqual(erased & set(seen_after), set())
        self.assertEqual(len(seen_after), 120)
