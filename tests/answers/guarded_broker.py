"""A broker with a policy and a registry, and a client whose every answer goes into the ledger."""

import asyncio
import base64
import json
import subprocess
import sys
from itertools import count
from pathlib import Path

from broker import A, ADAPTER, Broker, stream
from described import Answer, Ledger

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))
from harness.core import http  # noqa: E402
from harness.ws import read_head  # noqa: E402

PASSWORD = "pw"
ONE_ROW = {"id": 1, "price": 1.5}
_keys = count(1)
_hashes: list[str] = []


def hashed() -> str:
    if not _hashes:
        command = [str(ADAPTER.program()), "keys", "password"]
        _hashes.append(subprocess.run(command, input=PASSWORD, capture_output=True, text=True, check=True).stdout.strip())
    return _hashes[0]


def basic(user: str | None, password: str = PASSWORD) -> dict:
    return {} if user is None else {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


class NoRoom(OSError):
    """There were as many connections as may be. That is said before a request is looked at, so it is no operation's answer."""


class Guarded(Broker):
    """`admin` may do everything and `nobody` nothing."""

    ledger: Ledger | None = None

    def __init__(self, *streams: dict, failures: int = 100_000, managed: bool = True, **settings):
        if managed:
            settings = {"registry.profiles.local.revision": "1", "registry.profiles.other.revision": "2"} | settings
        super().__init__(*(streams or (stream("t", A), stream("live", None))), **settings)
        rules = self.home / "policy.toml"
        rules.write_text(
            f'[limits]\nfailures = {failures}\nfailure_s = 600\n[[principal]]\nname = "admin"\npassword = "{hashed()}"\ngrants = "*"\n'
            f'[[principal]]\nname = "nobody"\npassword = "{hashed()}"\ngrants = {{}}\n'
        )
        self.adapter.args += ["--policy", str(rules)]

    async def start(self, timeout: float = 60) -> None:
        await super().start(timeout)
        if Guarded.ledger is None:
            answer = await http(self.port, "GET", "/openapi.json", headers=basic("admin"))
            Guarded.ledger = Ledger(json.loads(answer.text))

    async def ask(self, method: str, target: str, body=None, *, user="admin", headers=None, raw: bytes | None = None) -> Answer:
        """One request. Changes of the control API are given a key and a media type, unless `headers` says otherwise."""
        sent = basic(user) | {"Content-Type": "application/json"}
        if target.startswith("/control") and method != "GET":
            sent["Idempotency-Key"] = f"key-{next(_keys)}"
        sent |= headers or {}
        if raw is None and body is not None:
            raw = json.dumps(body).encode()
        event = await http(self.port, method, target, headers=sent, body=raw)
        return self.took(method, target, Answer(event.code, event.headers, event.text))

    def took(self, method: str, target: str, answer: Answer) -> Answer:
        if answer.status == 503 and not answer.body:
            raise NoRoom
        self.ledger.take(method, target, answer.status, answer.code)
        if answer.status in (429, 503):
            assert answer.headers.get("retry-after"), (method, target, answer.headers)
        return answer

    async def wants(self, status: int, code: str | None, *request, **how) -> Answer:
        answer = await self.ask(*request, **how)
        assert (answer.status, answer.code) == (status, code), (request, how, answer.status, answer.body, "wanted", status, code)
        return answer

    async def ended(self, answer: Answer) -> str:
        """Waits for an operation; how it ended."""
        assert answer.status == 202, answer.body
        while True:
            operation = (await self.ask("GET", f"/control/v1/operations/{answer.json['operation_id']}")).json
            if operation["status"] in ("succeeded", "failed"):
                return operation["status"]
            await asyncio.sleep(0.01)

    async def desire(self, name: str, state: str, match: int) -> str:
        return await self.ended(await self.ask("PUT", f"/control/v1/streams/{name}/desired", {"state": state}, headers={"If-Match": f'"{match}"'}))

    async def declare(self, name: str, **members) -> Answer:
        answer = await self.ask("PUT", f"/control/v1/streams/{name}", declaration(**members), headers={"If-None-Match": "*"})
        assert await self.ended(answer) == "succeeded"
        return answer

    def tool(self, *args) -> str:
        """A command on the root of a broker that is stopped."""
        done = subprocess.run([str(ADAPTER.program()), *args, "--root", str(self.root)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout


def declaration(**members) -> dict:
    return {"schema": A, "storage_profile": "local", "initialization": "create_if_absent"} | members


class Late:
    """A request whose body comes when somebody says so."""

    def __init__(self, broker: Guarded, method: str, target: str, body, headers: dict | None = None, length: int | None = None):
        self.broker, self.method, self.target, self.body = broker, method, target, json.dumps(body).encode()
        length = length or len(self.body)
        fields = basic("admin") | {"Host": "x", "Content-Type": "application/json", "Content-Length": str(length)}
        fields |= {"Idempotency-Key": f"key-{next(_keys)}"} | (headers or {})
        self.head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"

    async def open(self) -> "Late":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.broker.port)
        self.writer.write(self.head.encode())
        await self.writer.drain()
        return self

    async def finish(self) -> Answer | None:
        """Sends the body; the answer, or none if the broker is gone."""
        try:
            self.writer.write(self.body)
            return await self.answer()
        except (OSError, asyncio.IncompleteReadError):
            return None

    async def answer(self) -> Answer:
        status, headers = await asyncio.wait_for(read_head(self.reader), 60)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return self.broker.took(self.method, self.target, Answer(status, headers, body.decode()))

    def close(self) -> None:
        self.writer.close()


