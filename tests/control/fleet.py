"""A controller that knows what the registry must say: streams, their revisions and states, and the call under way."""

import asyncio
import itertools
import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True

from harness.control import basic  # noqa: E402
from harness.core import http  # noqa: E402

_keys = itertools.count(1)


def schema(columns: int) -> dict:
    """`id` and so many columns more."""
    properties = {"id": {"type": "integer"}} | {f"c{n}": {"type": ["string", "null"]} for n in range(columns)}
    return {"type": "object", "properties": properties, "required": ["id"]}


OPTIONS = {
    "auth": {"users": {"admin": "pw"}, "grants": {"admin": "*"}},
    "registry": {"broker_id": "primary", "max_pending": 16, "profiles": {"local": {"revision": "1"}, "other": {"revision": "2"}}},
    "streams": [{"name": "static1", "durable": False}],
}


class Failure(Exception):
    pass


def check(condition, what: str) -> None:
    if not condition:
        raise Failure(what)


class Call:
    """One change. Sent again under the same key it must be answered the same."""

    def __init__(self, method: str, path: str, body: dict, match: str | None):
        self.method, self.path, self.body, self.match = method, path, body, match
        self.key = f"call-{next(_keys)}"
        self.receipt: dict | None = None

    async def send(self, port: int) -> tuple[int, dict]:
        headers = basic("admin") | {"Idempotency-Key": self.key, "Content-Type": "application/json"}
        headers |= {"If-None-Match": "*"} if self.match is None else {"If-Match": self.match}
        answer = await http(port, self.method, self.path, headers=headers, body=json.dumps(self.body).encode())
        return answer.code, json.loads(answer.text)


async def read(port: int, path: str) -> dict:
    answer = await http(port, "GET", path, headers=basic("admin"))
    check(answer.code == 200, f"GET {path}: {answer.code} {answer.text}")
    return json.loads(answer.text)


async def settled(port: int, name: str, seconds: float = 60) -> dict:
    """The stream when nothing is pending of it any more."""
    for _ in range(int(seconds / 0.02)):
        view = await read(port, f"/control/v1/streams/{name}")
        if view["pending"] is None:
            return view
        operation = await read(port, f"/control/v1/operations/{view['pending']}")
        check(operation["status"] != "failed", f"{name}: {operation}")
        await asyncio.sleep(0.02)
    raise Failure(f"{name}: an operation does not end: {operation}")


class Managed:
    """One stream as it must be."""

    def __init__(self, name: str, dice: random.Random):
        self.name, self.dice = name, dice
        self.revision, self.desired, self.columns, self.max_replay = 0, None, 0, 0
        self.stream_id: str | None = None
        self.call: Call | None = None
        self.then: dict = {}

    @property
    def path(self) -> str:
        return f"/control/v1/streams/{self.name}"

    def declaration(self, max_replay: int) -> dict:
        return {
            "schema": schema(self.columns), "storage_profile": "local", "initialization": "create_if_absent",
            "exactly_once": True, "max_replay": max_replay,
        }

    def next(self) -> Call:
        """A change that must be accepted."""
        match = f'"{self.revision}"' if self.revision else None
        if self.desired is None:
            call, then = Call("PUT", self.path, self.declaration(100_000), None), {"desired": "stopped", "max_replay": 100_000}
        else:
            kinds = {
                "stopped": ["serving"] * 5 + ["definition"] * 2 + (["migration"] * 3 if self.stream_id else []),
                "serving": ["stopped"] * 6 + ["serving"] + (["retired"] if self.dice.random() < 0.1 else []),
                "retired": ["retired"],
            }
            kind = self.dice.choice(kinds[self.desired])
            if kind == "definition":
                rows = self.dice.choice([100_000, 200_000, 300_000])
                call, then = Call("PUT", self.path, self.declaration(rows), match), {"max_replay": rows}
            elif kind == "migration":
                columns = self.dice.choice([n for n in range(4) if n != self.columns])
                body = {"stream_id": self.stream_id, "schema": schema(columns), "sort_by": []}
                call, then = Call("POST", f"{self.path}/migrations", body, match), {"columns": columns}
            else:
                call, then = Call("PUT", f"{self.path}/desired", {"state": kind}, match), {"desired": kind}
        self.call, self.then = call, then
        return call

    def accepted(self, status: int, body: dict) -> None:
        """Takes the answer to the call under way."""
        call = self.call
        check(status in (200, 202), f"{self.name}: {call.method} {call.path} {call.body} -> {status} {body}")
        if call.receipt is not None:
            check(call.receipt == body, f"{self.name}: another receipt: {call.receipt} {body}")
        if call.receipt is None:
            expected = self.revision + (status == 202)
            check(body["revision"] == expected, f"{self.name}: revision {body['revision']}, not {expected}")
        call.receipt = body
        self.revision = body["revision"]
        for key, value in self.then.items():
            setattr(self, key, value)

    def judge(self, view: dict) -> None:
        """Compares what the registry says with what must be."""
        found = {
            "revision": view["revision"], "desired": view["desired"], "observed": view["observed"]["state"],
            "max_replay": view["definition"]["max_replay"], "columns": len(view["definition"]["schema"]["properties"]) - 1,
        }
        wanted = {
            "revision": self.revision, "desired": self.desired, "observed": self.desired,
            "max_replay": self.max_replay, "columns": self.columns,
        }
        check(found == wanted, f"{self.name}: is {found}, must be {wanted}; {view['observed']}")
        if self.stream_id is not None:
            check(view["stream_id"] == self.stream_id, f"{self.name}: another identity")
        self.stream_id = view["stream_id"]
