#!/usr/bin/env python3
"""Autobahn's WebSocket test suite against the broker itself.

    ./run.py [--adapter PATH] [--cases '6.*'] [--verbose]

The suite expects a server that echoes, which a broker is not: it answers each message of a publisher with
one reply. So the messages a case sends are remembered, and each reply is handed to the case as the echo of
the oldest message that has none yet. Everything else the case sees comes from the broker as it is: whether a
message was answered at all and how often, pongs, close codes, who closed first, dropped connections.

Not run: 12.* and 13.* (permessage-deflate), an extension the broker declines.
"""

import argparse
import asyncio
import fnmatch
import json
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter, deque
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
sys.dont_write_bytecode = True
warnings.simplefilter("ignore")

from autobahn.asyncio.websocket import WebSocketClientFactory, WebSocketClientProtocol  # noqa: E402

import port  # noqa: E402
from harness.server import Adapter, Server  # noqa: E402

STREAM = "echo"
CEILING = 64 << 20  # bytes; the largest message of the suite has 16 MiB
GOOD = ("OK", "NON-STRICT", "INFORMATIONAL")
GOOD_CLOSE = ("OK", "INFORMATIONAL")

# Seconds before a case that the broker has not ended is ended by its client, which fails it. The suite's own second
# judges how often the machine stands still. Less than the 10 s after which the broker ends what its peer leaves open.
KILL_AFTER_S = 8

# One message in very many small writes with a pause after each: these wait rather than work.
CHOPPED = ("9.5.", "9.6.")


def octets(value) -> bytes:
    """Bytes of what a case calls a string: code points 0 to 255."""
    return value if isinstance(value, bytes) else value.encode("latin-1")


class Fuzzer(WebSocketClientProtocol):
    """The `self.p` of a case: sends what it is told, and shows the broker's replies as echoes."""

    def __init__(self, case_class):
        super().__init__()
        self.case_class = case_class
        self.runCase = None
        self.createWirelog = False
        self.connectionWasOpen = False
        self.txFrameStats: Counter = Counter()
        self.unanswered: deque[tuple[str, bool]] = deque()
        self.partial: tuple[bool, list[bytes]] | None = None
        self.greeted = False
        self.done = asyncio.get_running_loop().create_future()
        self.wrong: str | None = None

    # -- what cases call ----------------------------------------------------

    def enableWirelog(self, enable) -> None:
        self.createWirelog = enable

    def continueLater(self, delay, fun, tag=None) -> None:
        self._later(delay, fun)

    def killAfter(self, delay) -> None:
        self._later(max(delay, KILL_AFTER_S), self._fail_connection)

    def closeAfter(self, delay) -> None:
        self._later(delay, self.sendClose)

    def _later(self, delay, fun) -> None:
        def call():
            if self.state != self.STATE_CLOSED:
                fun()

        asyncio.get_running_loop().call_later(delay, call)

    def sendFrame(self, opcode, payload=b"", fin=True, rsv=0, mask=None, payload_len=None, chopsize=None, sync=False):
        payload = octets(payload)
        self.txFrameStats[opcode] += 1
        self._remember(opcode, payload, fin, payload_len)
        super().sendFrame(opcode, payload, fin, rsv, mask, payload_len, chopsize, sync)

    def sendMessage(self, payload, isBinary=False, fragmentSize=None, sync=False, doNotCompress=False):
        super().sendMessage(octets(payload), isBinary, fragmentSize, sync, doNotCompress)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        super().sendCloseFrame(code, None if reasonUtf8 is None else octets(reasonUtf8), isReply)

    def beginMessage(self, isBinary=False, doNotCompress=False):
        self.partial = (isBinary, [])
        super().beginMessage(isBinary, doNotCompress)

    def sendMessageFrameData(self, payload, sync=False):
        self.partial[1].append(octets(payload))
        return super().sendMessageFrameData(octets(payload), sync)

    def _remember(self, opcode, payload, fin, payload_len) -> None:
        """Collect the messages sent, to be echoed. Control frames and stray continuations are not messages."""
        if payload_len is not None:
            payload = (payload * (payload_len // max(1, len(payload)) + 1))[:payload_len]
        if opcode in (1, 2):
            self.partial = (opcode == 2, [])
        elif opcode != 0 or self.partial is None:
            return
        self.partial[1].append(payload)
        if fin:
            binary, parts = self.partial
            self.partial = None
            self.unanswered.append((b"".join(parts).decode("latin-1"), binary))

    # -- what the broker does -----------------------------------------------

    def onOpen(self):
        self.connectionWasOpen = True
        self.runCase.onOpen()

    def onMessage(self, payload, isBinary):
        if not self.greeted:
            self.greeted = True
            if isBinary or json.loads(payload).get("streamcast") != 4:
                self.wrong = f"greeting {payload[:80]!r}"
            return
        reply = None if isBinary else json.loads(payload)
        if not isinstance(reply, dict) or not ("ok" in reply or "error" in reply) or not self.unanswered:
            self.wrong = f"not a reply to anything: {payload[:80]!r}"
            return
        self.runCase.onMessage(*self.unanswered.popleft())

    def onPong(self, payload):
        self.runCase.onPong(payload.decode("latin-1"))

    def onClose(self, wasClean, code, reason):
        self.runCase.onClose(wasClean, code, reason)

    def connection_lost(self, exc):
        super().connection_lost(exc)
        if not self.done.done():
            self.runCase.onConnectionLost(self.failedByMe)
            self.done.set_result(None)


def case_classes(home: Path) -> dict[str, type]:
    """Case id → class, in the suite's order."""
    sys.path.insert(0, str(home))
    import case
    import cases

    # Pickles of equal values differ when a value is shared; the suite relies on Python 2's not doing so.
    case.Case.compare = lambda self, a, b: a == b
    return {c.__name__.removeprefix("Case").replace("_", "."): c for c in cases.Cases}


async def run_case(case_class, number: int) -> Fuzzer:
    factory = WebSocketClientFactory(f"ws://127.0.0.1:{number}/{STREAM}?publish")
    # The suite's own second for a closing handshake judges the machine's load rather than the broker.
    factory.setProtocolOptions(failByDrop=False, openHandshakeTimeout=60, closeHandshakeTimeout=60)
    peer = Fuzzer(case_class)
    peer.factory = factory
    peer.runCase = case_class(peer)
    await asyncio.get_running_loop().create_connection(lambda: peer, "127.0.0.1", number)
    await asyncio.wait_for(peer.done, 500)
    return peer


def judge(peer: Fuzzer) -> str | None:
    """Why the case failed, or None."""
    case = peer.runCase
    if peer.wrong:
        return peer.wrong
    if case.behavior not in GOOD:
        return f"{case.behavior}: {case.result} expected {str(case.expected)[:200]}, received {str(case.received)[:200]}"
    if case.behaviorClose not in GOOD_CLOSE:
        return f"close {case.behaviorClose}: {case.resultClose} (code {peer.remoteCloseCode}, {peer.wasNotCleanReason})"
    return None


async def run(args, server: Server) -> int:
    home = port.prepare(HERE.parent / ".cache")
    chosen = {i: c for i, c in case_classes(home).items() if any(fnmatch.fnmatch(i, g) for g in args.cases.split(","))}
    await server.start()
    failed, verdicts = [], Counter()
    gate = asyncio.Semaphore(args.parallel)

    async def one(name, case_class):
        # Volume and round trips come one after the other, the rest side by side.
        async with gate:
            began = time.monotonic()
            peer = await run_case(case_class, server.port)
        why = judge(peer)
        verdicts["FAILED" if why else peer.runCase.behavior] += 1
        if why:
            failed.append(name)
            print(f"FAIL {name}: {' '.join(case_class.DESCRIPTION.split())[:160]}\n     {why}", flush=True)
        elif args.verbose:
            print(f"ok   {name} {peer.runCase.behavior} ({time.monotonic() - began:.2f}s)", flush=True)

    alone = [name for name in chosen if name.startswith("9.") and not name.startswith(CHOPPED)]
    await asyncio.gather(*(one(i, c) for i, c in chosen.items() if i not in alone))
    for name in alone:
        await one(name, chosen[name])
    if not server.alive:
        print(f"the broker died: {server.tail()}")
        failed.append("the broker itself")
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()))
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default=str(HERE.parent / "conformance" / "adapter"))
    parser.add_argument("--cases", default="*", help="comma-separated globs over case ids")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="autobahn-"))
    config = {"streams": [{"name": STREAM, "durable": False}], "transport_max_bytes": CEILING}
    server = Server(Adapter(str(Path(args.adapter).resolve())), work / "root", config)
    try:
        status = asyncio.run(run(args, server))
    finally:
        server.kill()
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
