#!/usr/bin/env python3
"""Random calls, most of them wrong in some way, against a broker with a registry.

    ./sequences.py [--calls 1500] [--seed N] [--adapter PATH]

Every answer must be one that the description at /openapi.json names for its route, in its shape, and never a 500.
What was accepted must end; a key answers its first call for ever; revisions never go back.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from fleet import HERE, OPTIONS, Failure, check, schema

from harness.control import basic  # noqa: E402
from harness.core import http  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

NAMES = ["a", "b", "c", "static1", "nope", "bad%20name", ".dot", "%C3%A9", "registry.db", "x" * 129]
STATES = ["serving", "stopped", "retired", "running", None, 1]
SCHEMAS = [
    schema(0), schema(1), schema(2), {}, {"type": "object"}, {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}, "required": ["a"]},
    {"type": "object", "properties": {"litelink_offset": {"type": "integer"}}, "required": ["litelink_offset"]}, [], None, "x",
]
RAW = [b"", b"{", b"{} {}", b'{"a":1,"a":2}', b'{"a":NaN}', b'"\xff"', b"[" * 600, b'"' + b"x" * 300_000 + b'"', b"null", b"1e999"]


class Storm:
    def __init__(self, args, server: Server):
        self.dice, self.server, self.calls = random.Random(args.seed), server, args.calls
        self.revisions: dict[str, int] = {}
        self.collection = 0
        self.receipts: dict[str, tuple] = {}
        self.counts: dict[int, int] = {}

    async def run(self) -> None:
        answer = await http(self.server.port, "GET", "/openapi.json", headers=basic("admin"))
        check(answer.code == 200, f"/openapi.json: {answer.code}")
        self.paths = json.loads(answer.text)["paths"]
        for _ in range(self.calls):
            await self.dice.choice([self.define, self.define, self.desire, self.desire, self.desire, self.migrate, self.read, self.again])()

    def body(self, value) -> bytes:
        return self.dice.choice(RAW) if self.dice.random() < 0.06 else json.dumps(value).encode()

    async def define(self) -> None:
        dice = self.dice
        declaration = {"schema": dice.choice(SCHEMAS[:3] if dice.random() < 0.8 else SCHEMAS), "storage_profile": dice.choice(["local"] * 8 + ["other", "x", None])}
        for key, values in {
            "sort_by": [[], ["id"], ["id", "id"], "id"], "initialization": ["create_if_absent"] * 5 + ["open_existing", "x"],
            "exactly_once": [True, False, 1], "max_replay": [None, 0, 5, -1, 1.0, True, 1 << 80], "limits": [{}, {"max_backlog": 5}, {"max_backlog": 0}, None],
            "group_commit": [True, False, None], "x": [1],
        }.items():
            if dice.random() < (0.05 if key == "x" else 0.25):
                declaration[key] = dice.choice(values)
        await self.change("PUT", "/control/v1/streams/{name}", declaration)

    async def desire(self) -> None:
        dice = self.dice
        body = {"state": dice.choice(STATES[:2] if dice.random() < 0.9 else STATES)}
        if dice.random() < 0.03:
            body["x"] = 1
        await self.change("PUT", "/control/v1/streams/{name}/desired", body)

    async def migrate(self) -> None:
        dice, name = self.dice, self.dice.choice(NAMES[:3])
        view = await self.get("/control/v1/streams/{name}", name)
        stream_id = json.loads(view.text).get("stream_id") if view.code == 200 and dice.random() < 0.9 else "x"
        body = {"stream_id": stream_id, "schema": dice.choice(SCHEMAS), "sort_by": dice.choice([[], ["id"], ["zz"], None])}
        await self.change("POST", "/control/v1/streams/{name}/migrations", body, name)

    async def read(self) -> None:
        route = self.dice.choice(["/control/v1", "/control/v1/streams", "/control/v1/streams/{name}", "/control/v1/operations/{id}"])
        query = self.dice.choice(["", "", "?limit=1", "?limit=0", "?x=1", "?cursor=zz"]) if route.endswith("streams") else ""
        answer = await self.get(route, self.dice.choice(NAMES), query)
        if route.endswith("streams") and answer.code == 200:
            revision = json.loads(answer.text)["revision"]
            check(revision >= self.collection, f"the collection went back from {self.collection} to {revision}")
            self.collection = revision

    async def again(self) -> None:
        if self.receipts:
            key = self.dice.choice(list(self.receipts))
            sent, code, text = self.receipts[key]
            answer = await http(self.server.port, sent[0], sent[1], headers=sent[2], body=sent[3])
            check((answer.code, answer.text) == (code, text), f"{key} was answered {code} {text} and now {answer.code} {answer.text}")

    async def get(self, route: str, name: str, query: str = ""):
        path = route.replace("{name}", name).replace("{id}", name)
        answer = await http(self.server.port, "GET", path + query, headers=basic("admin"))
        self.judge("GET", route, path, answer)
        return answer

    async def change(self, method: str, route: str, body, name: str | None = None) -> None:
        dice = self.dice
        name = name or dice.choice(NAMES[:3] if dice.random() < 0.85 else NAMES)
        path = route.replace("{name}", name)
        key = f"key-{dice.randrange(1 << 60)}"
        headers = basic("admin") | {"Idempotency-Key": key, "Content-Type": "application/json"}
        revision = self.revisions.get(name)
        if revision is None:
            headers["If-None-Match"] = "*"
        else:
            headers["If-Match"] = f'"{revision}"'
        for wrong in ("Idempotency-Key", "Content-Type", "If-Match", "If-None-Match"):
            if dice.random() < 0.03:
                headers[wrong] = dice.choice(["", "x y", '"0"', "*", "text/plain"])
        raw = self.body(body)
        answer = await http(self.server.port, method, path, headers=headers, body=raw)
        self.judge(method, route, path, answer)
        if answer.code in (200, 202):
            receipt = json.loads(answer.text)
            check(answer.headers["etag"] == f'"{receipt["revision"]}"', f"{path}: {answer.headers}")
            check(receipt["revision"] == (revision or 0) + (answer.code == 202), f"{path}: {receipt} after {revision}")
            self.revisions[name] = receipt["revision"]
            self.receipts[headers["Idempotency-Key"]] = ((method, path, headers, raw), answer.code, answer.text)
            await self.ended(receipt["operation_id"])

    async def ended(self, operation_id: str) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            answer = await http(self.server.port, "GET", f"/control/v1/operations/{operation_id}", headers=basic("admin"))
            if json.loads(answer.text)["status"] in ("succeeded", "failed"):
                return
            await asyncio.sleep(0.005)
        raise Failure(f"the operation {operation_id} does not end")

    def judge(self, method: str, route: str, path: str, answer) -> None:
        self.counts[answer.code] = self.counts.get(answer.code, 0) + 1
        named = self.paths[route][method.lower()]["responses"]
        check(str(answer.code) in named and answer.code != 500, f"{method} {path} -> {answer.code} {answer.text}")
        body = json.loads(answer.text)
        if answer.code >= 400:
            check(set(body) == {"error"} and set(body["error"]) == {"code", "message", "retryable", "operation_id"}, f"{path}: {body}")
            codes = named[str(answer.code)]["description"]
            check(f"`{body['error']['code']}`" in codes, f"{path}: {body} is none of {codes}")


async def run(args, work: Path) -> Storm:
    server = Server(Adapter(str(args.adapter)), work / "root", dict(OPTIONS))
    await server.start()
    storm = Storm(args, server)
    try:
        await storm.run()
        check(await server.stop() == 0, "the broker did not stop in order")
    finally:
        server.kill()
    return storm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--adapter", type=Path, default=HERE.parent / "conformance" / "adapter")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="control-sequences-"))
    try:
        storm = asyncio.run(run(args, work))
        print(f"seed {args.seed}: {dict(sorted(storm.counts.items()))}")
        print("1 passed, 0 failed")
    except Failure as failure:
        print(f"seed {args.seed}: {failure}")
        print("0 passed, 1 failed")
        sys.exit(1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
