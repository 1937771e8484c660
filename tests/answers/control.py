"""The control API: what each change is refused for, in a broker of each kind that refuses."""

import asyncio
import contextlib
import signal
import sqlite3

from broker import A, stream
from guarded_broker import Guarded, Late, declaration

WIDER = A | {"properties": A["properties"] | {"more": {"type": ["string", "null"]}}}
TARGETS = [("PUT", "/control/v1/streams/{}"), ("PUT", "/control/v1/streams/{}/desired"), ("POST", "/control/v1/streams/{}/migrations")]


def bodies(stream_id: str = "x") -> list[dict]:
    """A good body for each of the three changes."""
    return [declaration(max_replay=7), {"state": "serving"}, {"stream_id": stream_id, "schema": WIDER, "sort_by": []}]


def changes(name: str, stream_id: str = "x"):
    return [(method, target.format(name), body) for (method, target), body in zip(TARGETS, bodies(stream_id))]


async def what_was_sent() -> None:
    """The checks before anything is looked up, and those on the state that a change is meant for."""
    async with Guarded(**{"registry.control_max_bytes": 4_096}) as broker:
        await broker.wants(200, None, "GET", "/control/v1")
        await broker.wants(404, "unknown_operation", "GET", "/control/v1/operations/" + "0" * 32)
        await broker.wants(404, "unknown_stream", "GET", "/control/v1/streams/a")
        first = await broker.declare("a")
        for method, target, body in changes("a"):
            for status, code, how in [
                (428, "idempotency_key_required", {"headers": {"Idempotency-Key": None}}),
                (400, "invalid_idempotency_key", {"headers": {"Idempotency-Key": "x y"}}),
                (415, "json_required", {"headers": {"Content-Type": "text/plain"}}),
                (415, "identity_encoding_required", {"headers": {"Content-Encoding": "gzip"}}),
                (413, "body_too_large", {"raw": b" " * 5_000}),
                (400, "invalid_json", {"raw": b'{"a":1,"a":1}'}),
                (428, "precondition_required", {"body": body}),
                (412, "precondition_failed", {"body": body, "headers": {"If-Match": '"9"'}}),
            ]:
                await broker.wants(status, code, method, target, **how)
            await broker.wants(409, "static_stream", method, target.replace("/a", "/t"), body)
            await broker.wants(422, "invalid_name", method, target.replace("/a", "/.a"), body)
        for method, target, body in changes("nope")[1:]:
            await broker.wants(404, "unknown_stream", method, target, body)
        # Under one key: the same again, and another.
        key = {"Idempotency-Key": "same", "If-Match": '"1"'}
        for method, target, body in changes("a"):
            headers = key | {"Idempotency-Key": f"same-{target}"}
            if target.endswith("desired"):
                # It is served first: only a stream with a log migrates.
                await broker.ended(await broker.ask(method, target, body, headers=headers))
                await broker.wants(409, "idempotency_mismatch", method, target, {"state": "stopped"}, headers=headers)
            elif target.endswith("migrations"):
                view = (await broker.ask("GET", "/control/v1/streams/a")).json
                await broker.desire("a", "stopped", view["revision"])
                headers |= {"If-Match": f'"{view["revision"] + 1}"'}
                body = body | {"stream_id": view["stream_id"]}
                await broker.ended(await broker.ask(method, target, body, headers=headers))
                again = await broker.ask(method, target, body, headers=headers)
                assert again.status == 202
                await broker.wants(409, "idempotency_mismatch", method, target, body | {"sort_by": ["id"]}, headers=headers)
            else:
                accepted = await broker.ask(method, target, declaration(), headers=headers)
                assert (accepted.status, accepted.headers["etag"]) == (200, '"1"'), accepted.body
                await broker.wants(409, "idempotency_mismatch", method, target, body, headers=headers)
        assert first.headers["location"].startswith("/control/v1/operations/")
        # The list and its cursors.
        await broker.declare("b")
        page = (await broker.wants(200, None, "GET", "/control/v1/streams?limit=1")).json
        await broker.declare("c")
        await broker.wants(409, "collection_changed", "GET", f"/control/v1/streams?cursor={page['next_cursor']}")
        await broker.wants(400, "invalid_pagination", "GET", "/control/v1/streams?limit=0")
        # Who there is.
        for listed in ("principals", "keys"):
            await broker.wants(400, "invalid_pagination", "GET", f"/control/v1/{listed}?limit=0")
            page = (await broker.wants(200, None, "GET", f"/control/v1/{listed}")).json
            names = [one["name"] for one in page[listed]]
            assert names == (["admin", "nobody"] if listed == "principals" else []), page
    async with Guarded(managed=False) as broker:
        for method, target, body in changes("a"):
            await broker.wants(403, "management_disabled", method, target, body)


async def what_a_stream_allows() -> None:
    guard = {"registry.history_guards.ledger.stream_id": "00000000-0000-4000-8000-000000000000",
             "registry.history_guards.ledger.known_offset": 1, "registry.history_guards.ledger.known_row.id": 1}
    async with Guarded(**guard) as broker:
        put, desired, migrations = (target for _, target in TARGETS)

        async def change(code, target: str, body, name="a", status=None):
            view = (await broker.ask("GET", f"/control/v1/streams/{name}")).json
            method = "POST" if target == migrations else "PUT"
            status = status or (200 if code is None else 409)
            return await broker.wants(status, code, method, target.format(name), body, headers={"If-Match": f'"{view["revision"]}"'})

        await broker.declare("a")
        await change("invalid_declaration", put, declaration(x=1), status=422)
        await change("unbound_stream", desired, {"state": "retired"})
        await change("invalid_desired", desired, {"state": "x"}, status=422)
        await broker.desire("a", "serving", 1)
        view = (await broker.wants(200, None, "GET", "/control/v1/streams/a")).json
        await change(None, put, declaration())
        await change(None, desired, {"state": "serving"})
        await change("must_be_stopped", put, declaration(max_replay=7))
        migration = {"stream_id": view["stream_id"], "schema": WIDER, "sort_by": []}
        await change("must_be_stopped", migrations, migration)
        await broker.desire("a", "stopped", 2)
        await change("migration_required", put, declaration(schema=WIDER))
        await change("immutable_storage", put, declaration(storage_profile="other"))
        await change("invalid_migration", migrations, {}, status=422)
        await change("identity_mismatch", migrations, migration | {"stream_id": "x"})
        await change("invalid_declaration", migrations, migration | {"schema": {}}, status=422)
        await broker.desire("a", "retired", 3)
        await change("retired_stream", desired, {"state": "serving"})
        # A stream whose history is not to be begun anew.
        await broker.wants(403, "history_prefix_protected", "PUT", put.format("ledger"), declaration(), headers={"If-None-Match": "*"})
        await broker.declare("ledger", initialization="open_existing")
        await change("history_prefix_protected", desired, {"state": "retired"}, "ledger", status=403)
        await change("history_prefix_protected", migrations, migration, "ledger", status=403)
        # One that cannot be served waits for the same again.
        await broker.declare("broken", initialization="open_existing")
        assert await broker.desire("broken", "serving", 1) == "failed"
        await change("transition_pending", put, declaration(), "broken")
        await change("transition_pending", desired, {"state": "stopped"}, "broken")
        await change("transition_pending", migrations, migration, "broken")
        # The host gives a profile another revision.
        await broker.stop()
        broker.adapter.settings["registry.profiles.local.revision"] = "9"
        await broker.start()
        await broker.wants(409, "profile_revision_changed", "GET", "/control/v1/streams")
        await broker.wants(409, "profile_revision_changed", "GET", "/control/v1/streams/a")


async def too_much_at_once() -> None:
    async with Guarded(**{"registry.max_pending": 1}) as broker:
        await broker.declare("a")
        # More calls at a time than the broker takes, if they come fast enough.
        wanted = {operation for operation in TARGETS}
        for _ in range(20):
            calls = [broker.ask(method, target, body) for method, target, body in changes("a") * 12]
            answers = await asyncio.gather(*calls)
            for (operation, answer) in zip(TARGETS * 12, answers):
                if answer.code == "control_unavailable":
                    wanted.discard(operation)
            if not wanted:
                break
        # One operation that has failed is all that may be pending.
        await broker.desire("a", "serving", 1)
        await broker.desire("a", "stopped", 2)
        view = (await broker.ask("GET", "/control/v1/streams/a")).json
        await broker.declare("broken", initialization="open_existing")
        assert await broker.desire("broken", "serving", 1) == "failed"
        for method, target, body in changes("a", view["stream_id"]):
            await broker.wants(429, "operation_queue_full", method, target, body, headers={"If-Match": f'"{view["revision"]}"'})


async def a_disk_that_fails() -> None:
    async with Guarded() as broker:
        await broker.declare("a")
        await broker.desire("a", "serving", 1)
        await broker.desire("a", "stopped", 2)
        view = (await broker.ask("GET", "/control/v1/streams/a")).json
        with contextlib.closing(sqlite3.connect(broker.root / "registry.db", isolation_level=None)) as other:
            # Somebody else writes and does not end.
            other.execute("BEGIN IMMEDIATE")
            for method, target, body in changes("a", view["stream_id"]):
                await broker.wants(500, "internal_error", method, target, body, headers={"If-Match": f'"{view["revision"]}"'})
            other.execute("ROLLBACK")
        # None of them was done, not even by half.
        assert (await broker.ask("GET", "/control/v1/streams/a")).json == view
        await broker.desire("a", "serving", view["revision"])


async def a_broker_that_stops() -> None:
    """Calls whose bodies come after the end has begun. Again, if that was not heard of while they were there."""
    for _ in range(5):
        codes = await stopping_codes()
        if "control_unavailable" in codes:
            return
    raise AssertionError(codes)


async def stopping_codes() -> list[str | None]:
    async with Guarded(stream("t", A)) as broker:
        # Whoever asks is known by then: the calls wait for their bodies and for nothing else.
        await broker.wants(200, None, "GET", "/control/v1")
        calls = [await Late(broker, method, target, body).open() for method, target, body in changes("late") * 12]
        await asyncio.sleep(1)
        broker.signal(signal.SIGTERM)
        answers = []
        for begin in range(0, len(calls), 3):
            await asyncio.sleep(0.1)
            answers += await asyncio.gather(*(call.finish() for call in calls[begin : begin + 3]))
        return [answer.code for answer in answers if answer]
