"""What any request may be answered before anybody looks at it."""

import asyncio

from guarded_broker import ONE_ROW, Guarded

FILLED = {"name": "a", "stream": "t", "id": "0" * 32}
BODY = {"name": "a", "entries": [ONE_ROW], "where": {"id": 1}, "validator": None}

#: What a caller may ask about itself, whoever it is.
ACCESS = ("GET", "/v1/access")

#: Checks of credentials that may wait (src/auth/pool.rs), and the threads that make them.
WAITING = 512 + 2


def requests(broker: Guarded):
    """A request of every operation."""
    for method, path in broker.ledger.operations():
        yield method, path.format(**FILLED), None if method in ("GET", "DELETE") else {}


async def who_may_not() -> None:
    async with Guarded() as broker:
        for request in requests(broker):
            if request[:2] == ACCESS:
                # Whoever shows nothing is told so, and nothing is kept from anybody that is about themselves.
                shown = await broker.wants(200, None, *request, user=None)
                assert (shown.json["principal"], shown.json["grants"]) == (None, {})
                shown = await broker.wants(200, None, *request, user="nobody")
                assert (shown.json["principal"], shown.json["grants"]) == ("nobody", {})
                wrong = {"headers": {"Authorization": "Bearer wrong"}}
            else:
                wrong = {"user": None}
            answer = await broker.wants(401, "authentication_required", *request, **wrong)
            assert answer.headers["www-authenticate"] == 'Basic realm="streamcast", charset="UTF-8"'
            await broker.wants(403, "forbidden", *request, headers={"Origin": "https://elsewhere.example"})
            if request[:2] not in (("GET", "/v1/streams"), ACCESS):
                # Such a list is empty for them.
                method, target, body = request
                await broker.wants(403, "forbidden", method, target, BODY if body is not None else None, user="nobody")
        assert (await broker.ask("GET", "/v1/streams", user="nobody")).json["streams"] == []


async def who_failed_too_often() -> None:
    async with Guarded(failures=3) as broker:
        for n in range(3):
            await broker.wants(401, "authentication_required", "GET", "/v1/streams", headers={"Authorization": f"Bearer wrong-{n}"})
        for request in requests(broker):
            await broker.wants(429, "too_many_failures", *request)


async def who_finds_the_gate_busy() -> None:
    """More passwords than can be looked at, each of them another one. Asked a few times: a machine that sends slower than
    the broker looks at them never fills it."""
    async with Guarded() as broker:
        wanted = set(broker.ledger.operations())
        for turn in range(5):
            full = asyncio.Event()
            storm = [asyncio.create_task(guess(broker, f"{turn}-{n}", full)) for n in range(WAITING + 200)]
            filling = asyncio.create_task(full.wait())
            await asyncio.wait([filling], timeout=5)
            asked = {asyncio.create_task(refused(broker, method, target, body, f"u-{turn}-{n}")): broker.ledger.operation(method, target)
                     for n, (method, target, body) in enumerate(requests(broker))}
            # A refusal comes at once. Whoever found room waits for hundreds of passwords to be looked at.
            answered, _ = await asyncio.wait(asked, timeout=5)
            wanted -= {asked[ask] for ask in answered if ask.result()}
            for task in [filling, *storm, *asked]:
                task.cancel()
            await asyncio.wait([filling, *storm, *asked])
            if not wanted:
                return


async def guess(broker: Guarded, user: str, full: asyncio.Event) -> None:
    if await refused(broker, "GET", "/v1/streams", None, user):
        full.set()


async def refused(broker: Guarded, method: str, target: str, body, user: str) -> bool:
    """Whether nobody had time for a password. Those that gave up count as connections until the broker has noticed, so
    there may be none left."""
    try:
        return (await broker.ask(method, target, body, user=user)).code == "broker_unavailable"
    except (OSError, EOFError):
        return False
