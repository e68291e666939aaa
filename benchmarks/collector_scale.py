"""Measurement of one collector with very many clients.

Clients are simulated by a few processes, each with the sockets of many: a real client has threads, of which
one machine cannot hold ten thousand. They send the same messages, also those that a client repeats until it
is answered. In each round every client sends a batch of rows and requests that they become durable; the next
batch follows when they are. At the end the file must have each row exactly once.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zmq

from shardkeep.collector.client.connection import ping_every_s
from shardkeep.collector.protocol.keys import new_key, read_client_key
from shardkeep.collector.protocol.messages import Kind, Message, Part, pack, pack_parts, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.protocol.zeromq import HANDSHAKE_MS
from shardkeep.files.owner import this_process
from shardkeep.hdf5 import Collector

__all__ = ["measured"]

_PROCESSES = 2
_SILENT_S = 120.0
_SCHEMA = Schema("loss", np.dtype("<f8"), (2,))


class _Clients:
    """The simulated clients of one process, with numbers `first`, `first` + `step`, …"""

    def __init__(self, address: str, key_file: str | None, numbers: range, world_size: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, len(numbers) + 16)
        self._poller = zmq.Poller()
        self._sockets: dict[Any, int] = {}
        self._size = world_size
        self.longest_silence_s = 0.0
        for number in numbers:
            socket = self._context.socket(zmq.DEALER)
            socket.linger = 0
            if key_file is not None:
                key = read_client_key(key_file)
                socket.curve_serverkey, socket.curve_publickey = key.server, key.public
                socket.curve_secretkey = key.secret
                socket.handshake_ivl = HANDSHAKE_MS
            socket.connect(address)
            self._sockets[socket] = number
            self._poller.register(socket, zmq.POLLIN)
        now = time.monotonic()
        self._sent_at, self._received_at = (
            dict.fromkeys(self._sockets, now),
            dict.fromkeys(self._sockets, now),
        )
        for socket in self._sockets:
            self._hello(socket)
        self._all(Kind.WELCOME, repeat=self._hello)
        for socket in self._sockets:
            self._send(socket, pack(Kind.DECLARE, value=1, parts=1, data=_SCHEMA.to_json()))
        self._all(Kind.DECLARED, repeat=self._ping)

    def _send(self, socket: Any, frames: list[Any]) -> None:
        socket.send_multipart(frames)
        self._sent_at[socket] = time.monotonic()

    def _hello(self, socket: Any) -> None:
        number = self._sockets[socket]
        hello = {
            "id": number.to_bytes(16, "big").hex(),
            "rank": number,
            "world_size": self._size,
            "pid": os.getpid(),
            "host": "simulated",
            "owner": asdict(this_process()),
        }
        self._send(socket, pack(Kind.HELLO, sequence=1, data=hello))

    def _ping(self, socket: Any) -> None:
        self._send(socket, pack(Kind.PING))

    def round(self, sequence: int, rows: int) -> list[float]:
        """Send a batch of each client; return the seconds until each one was durable."""
        begun = {}
        for socket, number in self._sockets.items():
            values = np.empty((rows, 2))
            values[:, 0], values[:, 1] = number, np.arange(rows) + (sequence - 1) * rows
            table = pack_parts([Part("loss", rows, values.nbytes)])
            header = pack(Kind.BATCH, sequence=sequence, value=values.nbytes, parts=1)
            begun[socket] = time.monotonic()
            self._send(socket, [*header, table, values])
            self._send(socket, pack(Kind.FLUSH, sequence=sequence))
        durable = self._all(Kind.STATE, sequence, repeat=self._ping)
        return [at - begun[socket] for socket, at in durable.items()]

    def leave(self, sequence: int) -> None:
        """Say goodbye."""
        for socket in self._sockets:
            self._send(socket, pack(Kind.BYE, sequence=sequence))
        self._all(Kind.GOODBYE)
        self._context.destroy(linger=0)

    def _all(self, kind: Kind, sequence: int = 0, repeat: Any = None) -> dict[Any, float]:
        """Return when each client received a message of a kind, up to a sequence number."""
        found: dict[Any, float] = {}
        until = time.monotonic() + _SILENT_S
        while len(found) < len(self._sockets):
            now = time.monotonic()
            for socket, message in self._receive():
                if message.kind in (Kind.REFUSED, Kind.UNKNOWN):
                    number = self._sockets[socket]
                    raise RuntimeError(f"client {number} got {message}, not {kind.name} {sequence}")
                if message.kind is kind and message.sequence >= sequence:
                    now = found[socket] = self._received_at[socket]
                    until = now + _SILENT_S
            if now > until:
                raise RuntimeError(f"{len(self._sockets) - len(found)} clients got no {kind.name}")
            if repeat is not None:
                self._repeat(repeat, found)
        return found

    def _receive(self) -> Iterator[tuple[Any, Message]]:
        ready = self._poller.poll(100)
        now = time.monotonic()
        for socket, _ in ready:
            self.longest_silence_s = max(self.longest_silence_s, now - self._received_at[socket])
            self._received_at[socket] = now
            yield socket, unpack(socket.recv_multipart())

    def _repeat(self, repeat: Any, found: dict[Any, float]) -> None:
        """Send again what a client repeats: seldom if it has its answer, else until it comes."""
        now = time.monotonic()
        for socket, sent_at in list(self._sent_at.items()):
            silent_s, is_idle = now - self._received_at[socket], socket in found
            if now > sent_at + ping_every_s(self._size, silent_s, is_idle=is_idle):
                (self._ping if is_idle else repeat)(socket)

    def wait(self, pipe: Any) -> None:
        """Wait for a message of the parent, as idle clients."""
        everyone = dict.fromkeys(self._sockets, 0.0)
        while not pipe.poll(0.1):
            list(self._receive())
            self._repeat(None, everyone)
        pipe.recv()


def _simulate(
    place: tuple[str, str | None], numbers: range, clients: int, rows: int, rounds: int, pipe: Any
) -> None:
    many = _Clients(*place, numbers, clients)
    pipe.send(None)
    many.wait(pipe)
    latencies = [s for sequence in range(1, rounds + 1) for s in many.round(sequence, rows)]
    pipe.send((latencies, many.longest_silence_s))
    many.wait(pipe)
    many.leave(rounds)
    pipe.send(None)


def measured(clients: int, *, rows: int = 10, rounds: int = 5, tcp: bool = False) -> dict[str, Any]:
    """Return what one collector does with this many clients.

    Parameters
    ----------
    clients, rows, rounds : int
        Number of clients, of rows in each batch, and of batches of each client.
    tcp : bool
        Whether they connect over TCP, with a key, and not to a Unix socket.

    Returns
    -------
    dict
        Seconds until all have joined, rows per second, median and maximum of the seconds of a flush, the
        longest time without an answer (`Connection` connects again after a longer one), and descriptors,
        memory and processor time of the collector.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.h5")
        address, keys = None, (None, None)
        if tcp:
            address, keys = "tcp://127.0.0.1:*", new_key(os.path.join(folder, "key"))
        with Collector(path, address, durability="flush", key_file=keys[0]) as collector:
            begun = time.monotonic()
            pipes, children = [], []
            for first in range(min(_PROCESSES, clients)):
                ours, theirs = context.Pipe()
                numbers = range(first, clients, _PROCESSES)
                args = ((collector.address, keys[1]), numbers, clients, rows, rounds, theirs)
                children.append(context.Process(target=_simulate, args=args))
                children[-1].start()
                theirs.close()
                pipes.append(ours)
            _answers(pipes)
            joined_s = time.monotonic() - begun
            process = collector._process
            assert process is not None
            before_s, begun = _processor_s(process.pid), time.monotonic()
            answers = _answers(pipes, go=True)
            latencies = sorted(s for some, _ in answers for s in some)
            seconds = time.monotonic() - begun
            result = {
                "clients": clients,
                "joined_s": joined_s,
                "rows_per_s": clients * rows * rounds / seconds,
                "median_s": statistics.median(latencies),
                "longest_s": latencies[-1],
                "silence_s": max(silence_s for _, silence_s in answers),
                "descriptors": len(os.listdir(f"/proc/{process.pid}/fd")),
                "peak_bytes": _peak_bytes(process.pid),
                "processor_s": _processor_s(process.pid) - before_s,
            }
            _answers(pipes, go=True)
            for child in children:
                child.join()
        with h5py.File(path) as file:
            found = file["loss"][:]
    wanted = np.stack(
        [np.repeat(np.arange(clients), rows * rounds), np.tile(np.arange(rows * rounds), clients)], 1
    )
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    if not np.array_equal(found, wanted):
        raise RuntimeError(f"{clients} clients sent {len(wanted)} rows, the file has {len(found)} or others")
    return result


def _answers(pipes: list[Any], *, go: bool = False) -> list[Any]:
    if go:
        for pipe in pipes:
            pipe.send(None)
    return [pipe.recv() for pipe in pipes]


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
