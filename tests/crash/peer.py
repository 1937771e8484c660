"""A WebSocket peer for load: it hands over everything that has arrived, many frames at a time.

The conformance suite's client shows one event after the other; a crash test reads tens of
thousands of frames a second and only wants their payloads.
"""

import asyncio
import os
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))
sys.dont_write_bytecode = True

from harness.ws import CLOSE, PING, PONG, TEXT, frame, upgrade  # noqa: E402


class Closed(Exception):
    """The connection is over. `code` is None when it just ended, without a close frame."""

    def __init__(self, code: int | None, reason: str = ""):
        super().__init__(f"{code} {reason}".strip())
        self.code, self.reason = code, reason


class Refused(Exception):
    """An HTTP answer other than 101."""


class Peer(asyncio.Protocol):
    """One connection. `take()` returns the text payloads that have arrived and waits for the first."""

    def __init__(self):
        self.transport: asyncio.Transport | None = None
        self.buffer = bytearray()
        self.frames: list[bytes] = []
        self.upgraded = False
        self.ended: Exception | None = None
        self.wake = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()

    @classmethod
    async def open(cls, port: int, target: str, *, receive_buffer: int | None = None) -> "Peer":
        """Connect and upgrade. OSError, Closed or Refused if the server would not have it."""
        import socket

        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await loop.sock_connect(sock, ("127.0.0.1", port))
            _, peer = await loop.create_connection(cls, sock=sock)
        except OSError:
            sock.close()
            raise
        peer.transport.write(upgrade(target, port))
        while not peer.upgraded:
            await peer._wait()
        return peer

    def send(self, payload: bytes) -> None:
        """Queue one text frame."""
        if not self.transport.is_closing():
            self.transport.write(frame(TEXT, payload))

    async def drained(self) -> None:
        await self.writable.wait()

    async def take(self) -> list[bytes]:
        """All payloads received since the last call, at least one. Raises Closed after the last."""
        while not self.frames:
            await self._wait()
        taken, self.frames = self.frames, []
        return taken

    async def first(self) -> bytes:
        """The next payload alone."""
        while not self.frames:
            await self._wait()
        return self.frames.pop(0)

    def close(self, code: int = 1000) -> None:
        """Say goodbye and let go; the rest is not read."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame(CLOSE, struct.pack(">H", code)))
            self.transport.close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    async def _wait(self) -> None:
        if self.ended is not None:
            raise self.ended
        self.wake.clear()
        await self.wake.wait()

    # -- asyncio.Protocol ---------------------------------------------------

    def connection_made(self, transport) -> None:
        self.transport = transport

    def connection_lost(self, exc) -> None:
        self._end(Closed(None, str(exc or "")))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.upgraded and not self._head():
            return
        self._frames()
        self.wake.set()

    def _end(self, why: Exception) -> None:
        self.ended = self.ended or why
        self.writable.set()
        self.wake.set()

    def _head(self) -> bool:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        line = bytes(self.buffer[: self.buffer.find(b"\r\n")])
        del self.buffer[: end + 4]
        if not line.startswith(b"HTTP/1.1 101"):
            self._end(Refused(line.decode("latin-1")))
            return False
        self.upgraded = True
        return True

    def _frames(self) -> None:
        buffer, at, size = self.buffer, 0, len(self.buffer)
        while size - at >= 2:
            opcode, length, start = buffer[at] & 0x0F, buffer[at + 1], at + 2
            if length == 126:
                start += 2
            elif length == 127:
                start += 8
            if size < start:
                break
            if length > 125:
                length = int.from_bytes(buffer[at + 2 : start], "big")
            if size < start + length:
                break
            payload = bytes(buffer[start : start + length])
            at = start + length
            if opcode == TEXT:
                self.frames.append(payload)
            elif opcode == PING:
                self.transport.write(frame(PONG, payload))
            elif opcode == CLOSE:
                code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
                self._end(Closed(code, payload[2:].decode("utf-8", "replace")))
                self.transport.write(frame(CLOSE, payload[:2]))
                self.transport.close()
        del buffer[:at]


def rng(seed: int | None):
    """A seeded generator and its seed, so that any run can be repeated."""
    import random

    seed = int.from_bytes(os.urandom(4), "big") if seed is None else seed
    return random.Random(seed), seed
