"""The batch API: every refusal, and every form of an answer."""

import asyncio
import contextlib
import sqlite3

from broker import A, PATIENCE_S, stream
from guarded_broker import ONE_ROW, Guarded, Late, basic

S = "/v1/streams"
FORMS = ("text/event-stream", "application/x-ndjson", "application/vnd.apache.arrow.stream")
LARGE = 8 << 20
WAITERS = 768
ROOM = 256 << 20

#: Every call about one stream, with a body that would do.
CALLS = [
    ("GET", S + "/{}", None), ("PATCH", S + "/{}", {"validator": None}), ("DELETE", S + "/{}", None),
    ("POST", S + "/{}/entries", {"entries": [ONE_ROW]}), ("GET", S + "/{}/entries", None),
    ("POST", S + "/{}/erasures", {"where": {"id": 1}}), ("GET", S + "/{}/erasures", None),
    ("GET", S + "/{}/retention", None), ("PUT", S + "/{}/retention", {"maxAgeS": None}),
]


async def what_was_sent() -> None:
    async with Guarded() as broker:
        for method, target, body in CALLS:
            await broker.wants(404, "stream_not_found", method, target.format("nope"), body)
            await broker.wants(409, "stream_not_durable", method, target.format("live"), body)
            await broker.wants(400, "invalid_request", method, target.format("%ff"), body)
            if body is not None:
                await coded(broker, method, target.format("t"), body)
        await coded(broker, "POST", S, {"name": "coded"})
        await broker.wants(409, "stream_is_configured", "DELETE", f"{S}/t")
        await broker.wants(409, "stream_exists", "POST", S, {"name": "t"})
        made = (await broker.wants(201, None, "POST", S, {"name": "e"})).json
        foreign = (await broker.wants(200, None, "POST", f"{S}/e/entries", {"entries": [{}]})).json
        for body, status, code in [
            (b"{", 400, "invalid_json"), (b"[]", 400, "invalid_request"), (b'{"name":"a b"}', 400, "invalid_name"),
            (b'{"name":"v","validator":"("}', 400, "invalid_validator"), (b'{"name":"s","schema":{}}', 422, "invalid_schema"),
            (b" " * (1 << 20) + b"{}", 413, "request_too_large"),
        ]:
            await broker.wants(status, code, "POST", S, raw=body)
        for body, status, code in [
            (b"{", 400, "invalid_json"), (b"{}", 400, "invalid_request"), (b'{"validator":"("}', 400, "invalid_validator"),
            (b" " * (1 << 20) + b"{}", 413, "request_too_large"),
        ]:
            await broker.wants(status, code, "PATCH", f"{S}/t", raw=body)
        await broker.wants(200, None, "PATCH", f"{S}/e", {"validator": "has(entry.a) == false"})
        await broker.wants(200, None, "GET", f"{S}/e")
        await broker.wants(200, None, "GET", S)
        await broker.wants(400, "invalid_request", "GET", f"{S}?limit=0")
        for body, status, code in [
            (b"{", 400, "invalid_json"), (b"{}", 400, "invalid_request"), (b'{"entries":[{"id":"x"}]}', 422, "validation_failed"),
        ]:
            await broker.wants(status, code, "POST", f"{S}/t/entries", raw=body)
        for body, status, code in [
            (b"{", 400, "invalid_json"), (b"{}", 400, "invalid_request"), (b'{"entryIds":["x"]}', 400, "invalid_entry_id"),
            (b'{"where":{"nope":1}}', 400, "invalid_where"),
        ]:
            await broker.wants(status, code, "POST", f"{S}/t/erasures", raw=body)
        for target in (f"{S}/t/entries", f"{S}/t/erasures"):
            # Refused by what it announces: nothing of it is sent.
            late = await Late(broker, "POST", target, {}, length=LARGE + 1).open()
            answer = await late.answer()
            assert (answer.status, answer.code) == (413, "request_too_large")
            late.close()
        for body in ({"entries": [ONE_ROW]}, {"where": {"id": 1}}):
            target = f"{S}/t/entries" if "entries" in body else f"{S}/t/erasures"
            await broker.wants(200, None, "POST", target, body | {"idempotencyKey": "k"})
            other = body | {"idempotencyKey": "k"} | ({"entries": [ONE_ROW] * 2} if "entries" in body else {"where": {"id": 2}})
            await broker.wants(409, "idempotency_key_reused", "POST", target, other)
        for query, status, code in [
            ("?limit=0", 400, "invalid_request"), ("?after=cur_x", 400, "invalid_cursor"), (f"?after={foreign['committedCursor']}", 400, "invalid_cursor"),
            ("?where=%7B", 400, "invalid_where"), ("?wait=0.1&after=head", 200, None), ("", 200, None),
        ]:
            await broker.wants(status, code, "GET", f"{S}/t/entries{query}")
        for body, status, code in [
            (b"{", 400, "invalid_json"), (b'{"maxAgeS":0}', 400, "invalid_request"), (b" " * 5_000, 413, "request_too_large"),
            (b'{"maxAgeS":86400}', 200, None),
        ]:
            await broker.wants(status, code, "PUT", f"{S}/t/retention", raw=body)
        # As it was given, and not as 86400.0.
        assert '"maxAgeS":86400,' in (await broker.wants(200, None, "GET", f"{S}/t/retention")).body
        await broker.wants(400, "invalid_request", "GET", f"{S}/t/erasures?limit=x")
        await broker.wants(200, None, "GET", f"{S}/t/erasures")
        # A stream that is no more, by its id.
        gone = (await broker.wants(202, None, "DELETE", f"{S}/e")).json
        assert gone["state"] == "deleting" and gone["id"] == made["id"]
        for method, target, body in CALLS:
            await broker.wants(410, "stream_deleted", method, target.format(made["id"]), body)
        # One that takes no more.
        await broker.declare("r")
        await broker.wants(409, "stream_exists", "POST", S, {"name": "r"})
        await broker.desire("r", "serving", 1)
        await broker.wants(409, "stream_is_declared", "DELETE", f"{S}/r")
        await broker.desire("r", "retired", 2)
        await broker.wants(409, "stream_is_declared", "DELETE", f"{S}/r")
        await broker.wants(409, "stream_retired", "POST", f"{S}/r/entries", {"entries": [ONE_ROW]})
        await broker.wants(200, None, "GET", f"{S}/r/entries")


async def coded(broker: Guarded, method: str, target: str, body: dict) -> None:
    """A body that is said to be compressed is not taken for what it is."""
    answer = await broker.wants(415, "identity_encoding_required", method, target, body, headers={"Content-Encoding": "gzip"})
    assert answer.headers["accept-encoding"] == "identity" and "Content-Encoding" in answer.json["error"]["message"], answer.body


async def rows_that_left() -> None:
    """Rows that only the published table has, and then nobody."""
    async with Guarded(stream("t", A), stream("p", A, replay_published=True)) as broker:
        cursors = {}
        for name in ("t", "p"):
            body = {"entries": [{"id": n, "price": 1} for n in range(50)]}
            cursors[name] = (await broker.wants(200, None, "POST", f"{S}/{name}/entries", body)).json["entries"][3]["cursor"]
        await broker.stop()
        for name in ("t", "p"):
            broker.tool("flush", name, "--evict")
        await broker.start()
        for accept in (None, *FORMS):
            headers = {"Accept": accept} if accept else {}
            expired = await broker.wants(410, "cursor_expired", "GET", f"{S}/t/entries?after={cursors['t']}", headers=headers)
            earliest = expired.json["error"]["details"]["earliest"]
            await broker.wants(200, None, "GET", f"{S}/t/entries?after={earliest}")
            page = await broker.wants(200, None, "GET", f"{S}/p/entries?after={cursors['p']}")
            assert [one["entry"]["id"] for one in page.json["entries"]] == list(range(4, 50))
        for files in broker.root.rglob("p/**/*.parquet"):
            files.unlink()
        # Not the page that was read a moment ago: it is kept for others who ask for the same.
        await asyncio.sleep(0.2)
        await broker.wants(503, "unavailable", "GET", f"{S}/p/entries?after={cursors['p']}")


async def how_long_rows_are_kept() -> None:
    """A stream whose whole history is guarded, and documents that cannot be read."""
    guard = {"registry.history_guards.t.stream_id": "00000000-0000-4000-8000-000000000000",
             "registry.history_guards.t.known_offset": 1, "registry.history_guards.t.known_row.id": 1}
    target = f"{S}/t/retention"
    async with Guarded(**guard) as broker:
        before = (await broker.wants(200, None, "GET", target)).json
        await broker.wants(409, "history_is_guarded", "PUT", target, {"maxAgeS": 60})
        assert (await broker.ask("GET", target)).json == before
    async with Guarded() as broker:
        [versions] = broker.root.rglob("t.metadata")
        away = versions.rename(versions.with_name("away"))
        versions.write_text("not a directory")
        await broker.wants(503, "unavailable", "GET", target)
        await broker.wants(503, "unavailable", "PUT", target, {"maxAgeS": 60})
        versions.unlink()
        away.rename(versions)
        assert (await broker.wants(200, None, "GET", target)).json == before


async def a_journal_that_does_not_take_more() -> None:
    async with Guarded() as broker:
        await broker.wants(201, None, "POST", S, {"name": "e"})
        await broker.wants(200, None, "POST", f"{S}/t/entries", {"entries": [ONE_ROW]})
        before = (await broker.ask("GET", f"{S}/t/entries")).json
        with contextlib.closing(sqlite3.connect(broker.root / "journal.db", isolation_level=None, timeout=30)) as other:
            # Somebody else writes and does not end.
            other.execute("BEGIN IMMEDIATE")
            for method, target, body in CALLS:
                if method in ("POST", "PATCH"):
                    answer = await broker.wants(503, "unavailable", method, target.format("t"), body)
                    assert "database is locked" in answer.body, answer.body
            await broker.wants(503, "unavailable", "POST", S, {"name": "never"})
            await broker.wants(503, "unavailable", "DELETE", f"{S}/e")
            other.execute("ROLLBACK")
        assert (await broker.ask("GET", f"{S}/t/entries")).json == before
        await broker.wants(404, "stream_not_found", "GET", f"{S}/never")
        await broker.wants(200, None, "POST", f"{S}/t/entries", {"entries": [ONE_ROW]})


async def too_much_at_once() -> None:
    async with Guarded() as broker:
        # As many bodies as there is room for, none of which comes.
        held = [await Late(broker, "POST", f"{S}/t/entries", {}, length=LARGE).open() for _ in range(ROOM // LARGE)]
        async with asyncio.timeout(PATIENCE_S):
            while (await broker.ask("POST", f"{S}/t/entries", {"entries": [ONE_ROW]})).code != "too_many_requests":
                await asyncio.sleep(0.05)
        calls = [(method, target.format("t"), body) for method, target, body in CALLS if method == "POST"]
        answers = await asyncio.gather(*(broker.ask(*call) for call in calls))
        assert {answer.code for answer in answers} == {"too_many_requests"}, answers
        for one in held:
            one.close()
        # As many readers that follow as there may be.
        asked = f"GET {S}/t/entries HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: {basic('admin')['Authorization']}\r\n\r\n"
        followers = []
        for _ in range(WAITERS):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(asked.encode())
            followers.append((reader, writer))
        for reader, _ in followers:
            assert b" 200 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
        await broker.wants(429, "too_many_requests", "GET", f"{S}/t/entries?after=head&wait=1")
        await broker.wants(429, "too_many_requests", "GET", f"{S}/t/entries", headers={"Accept": "text/event-stream"})
        # Whoever does not wait is answered on.
        await broker.wants(200, None, "GET", f"{S}/t/entries")
        for _, writer in followers:
            writer.close()
