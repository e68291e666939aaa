"""A proxy on the loopback interface that delays, refuses, cuts and changes the traffic of one server.

Without faults it forwards bytes, with a latency that does not limit the bandwidth. With faults it reads each
request of HTTP up to its headers, so that a fault can be for some requests only; then a connection carries
one request. For measurements it runs as a program:
``python -m tests.frameworks.remote.servers.fault_proxy PORT --latency-ms 20``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Awaitable
from typing import NamedTuple

__all__ = ["Fault", "FaultProxy", "Seen"]

_CHUNK = 256 * 1024
_REASONS = {429: "Too Many Requests", 500: "Internal Server Error", 503: "Slow Down"}
_ERROR = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>injected</Message>'
    b"<RequestId>request-of-the-proxy</RequestId></Error>"
)


@dataclasses.dataclass
class Fault:
    """One kind of fault, for the next requests that it matches.

    Attributes
    ----------
    kind : str
        "status": answer `status` without asking the server. "reset": reset the connection instead of an
        answer. "lost": let the server do it, then reset instead of its answer. "cut": end the body of the
        answer after `after_bytes`, by a reset. "shorten": the same with a matching Content-Length, so that
        only a comparison of sizes or checksums finds it. "flip": change one byte of the body. "stall": never
        answer. "slow": send the answer in pieces of `after_bytes` with `pause_s` between them.
    times : int
        How many requests have the fault.
    method, target : str
        Pattern of the method, and pattern to search in path and query.
    """

    kind: str
    times: int = 1
    method: str = ".*"
    target: str = ""
    status: int = 503
    after_bytes: int = 0
    pause_s: float = 0.05

    def matches(self, method: str, target: str) -> bool:
        """Return True for a request that has this fault."""
        return bool(self.times > 0 and re.fullmatch(self.method, method) and re.search(self.target, target))


class Seen(NamedTuple):
    """A request that arrived: time, method, path with query, headers, and the kind of its fault or ""."""

    time_s: float
    method: str
    target: str
    headers: dict[str, str]
    fault: str


class FaultProxy:
    """A proxy that runs in a thread of this process, or in `run`.

    Parameters
    ----------
    upstream : int
        Port of the server on the loopback interface.
    latency_s : float
        Round trip time that is added, half of it in each direction.
    inspect : bool
        True to read requests of HTTP, which faults need.
    """

    def __init__(self, upstream: int, *, latency_s: float = 0.0, inspect: bool = True) -> None:
        self.upstream = upstream
        self.latency_s = latency_s
        self.inspect = inspect
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.connections = 0
        self._serving: set[asyncio.Task[object]] = set()
        self.port = 0
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self.run()), name="fault-proxy", daemon=True
        )

    def inject(self, kind: str, times: int = 1, **how: object) -> Fault:
        """Add a fault for the next matching requests."""
        fault = Fault(kind, times, **how)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)

    async def run(self, port: int = 0) -> None:
        """Serve until `__exit__`."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", port, limit=1 << 20, backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        # A connection that was accepted gets its task a little later; a task that is cancelled before its
        # beginning does not close its socket.
        while rest := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in self._serving:
                task.cancel()
            await asyncio.wait(rest, timeout=0.1)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        # After the end of a request nothing else refers to a task that waits for the server, and the garbage
        # collector would destroy it.
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await asyncio.sleep(self.latency_s)  # of the connection itself
            await (self._http if self.inspect else self._forward)(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            _reset(writer)
        finally:
            writer.close()
            self._serving.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)
        try:
            await asyncio.gather(self._pump(reader, forth), self._pump(back, writer))
        finally:
            forth.close()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        fault = next((one for one in self.faults if one.matches(method, target)), None)
        self.seen.append(Seen(time.monotonic(), method, target, headers, fault.kind if fault else ""))
        if fault is not None:
            fault.times -= 1
        if fault is not None and fault.kind in ("status", "reset", "stall"):
            await self._refuse(fault, method, reader, writer, headers)
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)
        try:
            kept = [line for line in lines if not line.lower().startswith("connection:")]
            forth.write("\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1"))
            sending = asyncio.ensure_future(self._pump(reader, forth))
            try:
                await self._answer(fault, back, writer)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
        finally:
            forth.close()

    async def _refuse(
        self,
        fault: Fault,
        method: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: dict[str, str],
    ) -> None:
        if fault.kind == "reset":
            _reset(writer)
        elif fault.kind == "stall":
            while await reader.read(_CHUNK):
                pass
        else:
            if "expect" not in headers:  # a client that sends its body without asking reads no answer before
                await _drain_body(reader, headers)
            reason = _REASONS.get(fault.status, "Injected")
            answer = (
                f"HTTP/1.1 {fault.status} {reason}\r\nContent-Type: application/xml\r\n"
                f"x-amz-request-id: request-of-the-proxy\r\nConnection: close\r\n"
                f"Content-Length: {len(_ERROR)}\r\n\r\n"
            )
            await asyncio.sleep(self.latency_s)
            writer.write(answer.encode() + (b"" if method == "HEAD" else _ERROR))
            await writer.drain()

    async def _answer(
        self, fault: Fault | None, back: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if fault is None:
            await self._pump(back, writer)
            return
        head = await back.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100"):
            writer.write(head)
            head = await back.readuntil(b"\r\n\r\n")
        body = await back.read(-1)
        if fault.kind == "lost":
            _reset(writer)
            return
        if fault.kind == "flip" and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        elif fault.kind == "shorten":
            body = body[: fault.after_bytes]
            head = re.sub(rb"(?i)(content-length: *)\d+", rb"\g<1>%d" % len(body), head)
        await asyncio.sleep(self.latency_s)
        writer.write(head)
        if fault.kind == "cut":
            writer.write(body[: fault.after_bytes])
            await writer.drain()
            await asyncio.sleep(0.05)  # the client has read them before the reset discards them
            _reset(writer)
        elif fault.kind == "slow":
            for start in range(0, len(body), max(1, fault.after_bytes)):
                writer.write(body[start : start + max(1, fault.after_bytes)])
                await writer.drain()
                await asyncio.sleep(fault.pause_s)
        else:
            writer.write(body)
            await writer.drain()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Copy until the end, each chunk late by half the latency, however many are on the way."""
        delay = self.latency_s / 2
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)

        async def send() -> None:
            while True:
                due, data = await on_the_way.get()
                if (rest := due - time.monotonic()) > 0:
                    await asyncio.sleep(rest)
                if not data:
                    break
                target.write(data)
                await target.drain()
            with contextlib.suppress(OSError):
                if target.can_write_eof():
                    target.write_eof()

        sender = asyncio.ensure_future(send())
        try:
            while data := await source.read(_CHUNK):
                await _either(on_the_way.put((time.monotonic() + delay, data)), sender)
            await _either(on_the_way.put((time.monotonic() + delay, b"")), sender)
            await sender
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


async def _either(putting: Awaitable[None], sender: asyncio.Future[None]) -> None:
    """Put a chunk; raise the error of the sender if it ended instead."""
    task = asyncio.ensure_future(putting)
    await asyncio.wait([task, sender], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        raise sender.exception() or ConnectionResetError


async def _drain_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> None:
    rest = int(headers.get("content-length", 0))
    while rest > 0 and (data := await reader.read(min(rest, _CHUNK))):
        rest -= len(data)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset instead of an orderly end."""
    with contextlib.suppress(OSError):
        made = writer.get_extra_info("socket")
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def main(arguments: list[str]) -> None:
    """Forward to a port with latency, print the port of the proxy, and run until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("upstream", type=int)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args(arguments)
    proxy = FaultProxy(given.upstream, latency_s=given.latency_ms / 1e3, inspect=False)

    async def run() -> None:
        serving = asyncio.ensure_future(proxy.run(given.port))
        while not proxy.port and not serving.done():
            await asyncio.sleep(0.01)
        sys.stdout.write(f"{proxy.port}\n")
        sys.stdout.flush()
        await serving

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run())


if __name__ == "__main__":
    main(sys.argv[1:])
