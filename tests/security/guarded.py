"""A broker with a policy, and requests written by hand."""

import asyncio
import base64
import json
import subprocess
import time
from pathlib import Path

from broker import A, ADAPTER, PATIENCE_S, Broker, Case, stream

PASSWORD = "correct-horse-battery"
WRONG = "wrong-horse-battery"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GREETING = b'{"streamcast"'


def tool(*args, **how) -> str:
    done = subprocess.run([str(ADAPTER.program()), *map(str, args)], capture_output=True, text=True, timeout=60, **how)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def basic(user: str = "ann", password: str = PASSWORD) -> dict:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def request(method: str, target: str, fields: dict | list = (), body: bytes = b"") -> bytes:
    fields = list(fields.items()) if isinstance(fields, dict) else list(fields)
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def upgrade(target: str, fields: dict | list = (), body: bytes = b"") -> bytes:
    fields = list(fields.items()) if isinstance(fields, dict) else list(fields)
    asked = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", KEY)]
    return request("GET", target, [*asked, *fields], body)


async def answers(
    port: int, sent: bytes, within: float = PATIENCE_S, quiet: float = 0.3, until: bytes = b"", reached: asyncio.Event | None = None, **how
) -> bytes:
    """Everything that comes back until the peer ends, or nothing has come for a while and `until` is among it. `reached` is
    set when something has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **how)
    found = b""
    try:
        writer.write(sent)
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            wait = quiet if found and until in found else max(0, deadline - time.monotonic())
            try:
                more = await asyncio.wait_for(reader.read(65_536), wait)
            except (TimeoutError, ConnectionError):
                break
            if not more:
                break
            found += more
            if reached:
                reached.set()
    except ConnectionError:
        pass
    finally:
        writer.close()
    return found


def codes(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


class Guarded(Case):
    """ann reads r; ops may do everything; etl has a key and publishes."""

    settings: dict = {}
    policy = ""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.broker = Broker(stream("r", A), stream("secret", A), log="trace", **self.settings)
        self.rules = self.broker.home / "policy.toml"
        self.keys = self.broker.home / "keys.json"
        if not hasattr(Guarded, "hash"):
            Guarded.hash = tool("keys", "password", input=PASSWORD)
        self.write_policy()
        self.key = tool("keys", "add", "etl", "--grant", "data.publish=r", "--file", self.keys)
        self.broker.adapter.args += ["--policy", str(self.rules), "--keys", str(self.keys), *self.more_args()]
        await self.broker.start()
        self.port = self.broker.port

    def more_args(self) -> list[str]:
        return []

    def write_policy(self):
        self.rules.write_text(
            f'{self.policy}\n[[principal]]\nname = "ann"\npassword = "{self.hash}"\n[principal.grants]\n"data.read" = "r"\n'
            f'[[principal]]\nname = "ops"\npassword = "{self.hash}"\ngrants = "*"\n'
        )

    async def asyncTearDown(self):
        await self.broker.__aexit__()

    async def codes(self, sent: bytes) -> list[int]:
        return codes(await answers(self.port, sent))

    def log(self) -> str:
        return self.broker.log_path.read_text(errors="replace")


def greeting(answer: bytes) -> dict | None:
    """The first text frame after a 101, if it is a greeting."""
    start = answer.find(GREETING)
    if start < 0:
        return None
    return json.JSONDecoder().raw_decode(answer[start:].decode(errors="replace"))[0]


def certificate(home: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    cert, key = home / f"{name}.pem", home / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key
