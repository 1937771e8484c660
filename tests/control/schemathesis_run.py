#!/usr/bin/env python3
"""Runs schemathesis over /openapi.json of a broker with a registry: the control API, and the batch API.

    ./schemathesis_run.py [--examples 40] [--seed N] [--adapter PATH]

The python that runs this has schemathesis (requirements.txt beside this file).
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from fleet import HERE, OPTIONS, Call, check, schema, settled

from harness.control import basic  # noqa: E402
from harness.core import http  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402


async def run(args, work: Path) -> int:
    server = Server(Adapter(str(args.adapter)), work / "root", dict(OPTIONS))
    await server.start()
    try:
        declaration = {"schema": schema(1), "storage_profile": "local", "initialization": "create_if_absent"}
        call = Call("PUT", "/control/v1/streams/declared", declaration, None)
        check((await call.send(server.port))[0] == 202, "the stream was not declared")
        # The batch API finds it in service, with rows.
        call = Call("PUT", "/control/v1/streams/declared/desired", {"state": "serving"}, '"1"')
        check((await call.send(server.port))[0] == 202, "the stream is not served")
        await settled(server.port, "declared")
        entries = {"entries": [{"id": n} for n in range(20)]}
        answer = await http(server.port, "POST", "/v1/streams/declared/entries", headers=basic("admin"), body=json.dumps(entries).encode())
        check(answer.code == 200, f"nothing was inserted: {answer.text}")
        command = [
            str(Path(sys.executable).parent / "st"), "--config-file", str(HERE / "schemathesis.toml"), "run",
            f"http://127.0.0.1:{server.port}/openapi.json", "--auth", "admin:pw", "--max-examples", str(args.examples),
            "--seed", str(args.seed), "--include-path-regex", args.paths, "--no-color",
        ]
        process = await asyncio.create_subprocess_exec(*command, cwd=work, stdin=subprocess.DEVNULL)
        status = await asyncio.wait_for(process.wait(), 900)
        if await server.stop() != 0:
            print("the broker did not stop in order")
            status = 1
        return status
    finally:
        server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paths", default="^/(control/)?v1", help="regular expression of the paths that are called")
    parser.add_argument("--adapter", type=Path, default=HERE.parent / "conformance" / "adapter")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="control-schemathesis-"))
    try:
        status = asyncio.run(run(args, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("1 passed, 0 failed" if status == 0 else "0 passed, 1 failed")
    sys.exit(status)


if __name__ == "__main__":
    main()
