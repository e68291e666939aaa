"""Measurement of one collector with very many clients.

``python -m benchmarks.collector_scale [clients …] [--rows N] [--rounds N] [--address ADDRESS]``

Clients are simulated by a few processes, each with the sockets of many: a real client has threads, of which
one machine cannot hold ten thousand. They send the same messages. In each round every client sends a batch of
rows and requests that they become durable; the next batch follows when they are. At the end the file must
have each row exactly once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zmq

from shardkeep.collector.protocol.messages import Kind, Part, pack, pack_parts, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.hdf5 import Collector

__all__ = ["measured"]

_PROCESSES = 2
_PING_S = 2.0
_SILENT_S = 120.0
_SCHEMA = Schema("loss", np.dtype("<f8"), (2,))


class _Clients:
    """The simulated clients of one process, with numbers `first`, `first` + `step`, …"""

    def __init__(self, address: str, numbers: range, world_size: int) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, len(numbers) + 16)
        self._poller = zmq.Poller()
        self._sockets: dict[Any, int] = {}
        self._pinged = time.monotonic()
        for number in numbers:
            socket = self._context.socket(zmq.DEALER)
            socket.linger = 0
            socket.connect(address)
            self._sockets[socket] = number
            self._poller.register(socket, zmq.POLLIN)
        for socket, number in self._sockets.items():
            hello = {
                "id": number.to_bytes(16, "big").hex(),
                "rank": number,
                "world_size": world_size,
                "pid": os.getpid(),
                "host": "simulated",
            }
            socket.send_multipart(pack(Kind.HELLO, sequence=1, data=hello))
        self._all(Kind.WELCOME)
        for socket in self._sockets:
            socket.send_multipart(pack(Kind.DECLARE, value=1, parts=1, data=_SCHEMA.to_json()))
        self._all(Kind.DECLARED)

    def round(self, sequence: int, rows: int) -> list[float]:
        """Send a batch of each client; return the seconds until each one was durable."""
        begun = {}
        for socket, number in self._sockets.items():
            values = np.empty((rows, 2))
            values[:, 0], values[:, 1] = number, np.arange(rows) + (sequence - 1) * rows
            table = pack_parts([Part("loss", rows, values.nbytes)])
            header = pack(Kind.BATCH, sequence=sequence, value=values.nbytes, parts=1)
            begun[socket] = time.monotonic()
            socket.send_multipart([*header, table, values])
            socket.send_multipart(pack(Kind.FLUSH, sequence=sequence))
        return [at - begun[socket] for socket, at in self._all(Kind.STATE, sequence).items()]

    def leave(self, sequence: int) -> None:
        """Say goodbye."""
        for socket in self._sockets:
            socket.send_multipart(pack(Kind.BYE, sequence=sequence))
        self._all(Kind.GOODBYE)
        self._context.destroy(linger=0)

    def _all(self, kind: Kind, sequence: int = 0) -> dict[Any, float]:
        """Return when each client received a message of a kind, up to a sequence number."""
        found: dict[Any, float] = {}
        until = time.monotonic() + _SILENT_S
        while len(found) < len(self._sockets):
            ready = self._poller.poll(200)
            now = time.monotonic()
            for socket, _ in ready:
                message = unpack(socket.recv_multipart())
                if message.kind in (Kind.REFUSED, Kind.UNKNOWN):
                    number = self._sockets[socket]
                    raise RuntimeError(f"client {number} got {message}, not {kind.name} {sequence}")
                if message.kind is kind and message.sequence >= sequence:
                    found[socket] = now
                    until = now + _SILENT_S
            if now > until:
                raise RuntimeError(f"{len(self._sockets) - len(found)} clients got no {kind.name}")
            if kind is not Kind.GOODBYE:
                self._ping()
        return found

    def wait(self, pipe: Any) -> None:
        """Wait for a message of the parent; a client that is silent for 10 s is taken for dead."""
        while not pipe.poll(0.2):
            self._ping()
        pipe.recv()

    def _ping(self) -> None:
        if time.monotonic() - self._pinged > _PING_S:
            self._pinged = time.monotonic()
            for socket in self._sockets:
                socket.send_multipart(pack(Kind.PING))


def _simulate(address: str, first: int, clients: int, rows: int, rounds: int, pipe: Any) -> None:
    many = _Clients(address, range(first, clients, _PROCESSES), clients)
    pipe.send(None)
    many.wait(pipe)
    latencies = [s for sequence in range(1, rounds + 1) for s in many.round(sequence, rows)]
    pipe.send(latencies)
    many.wait(pipe)
    many.leave(rounds)
    pipe.send(None)


def measured(clients: int, *, rows: int = 10, rounds: int = 5, address: str | None = None) -> dict[str, Any]:
    """Return what one collector does with this many clients.

    Parameters
    ----------
    clients, rows, rounds : int
        Number of clients, of rows in each batch, and of batches of each client.
    address : str, optional
        Address of the collector; by default a Unix socket.

    Returns
    -------
    dict
        Seconds until all have joined, rows per second, median and maximum of the seconds of a flush,
        descriptors, memory and processor time of the collector.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "all.h5")
        with Collector(path, address, durability="flush") as collector:
            begun = time.monotonic()
            pipes, children = [], []
            for first in range(min(_PROCESSES, clients)):
                ours, theirs = context.Pipe()
                args = (collector.address, first, clients, rows, rounds, theirs)
                children.append(context.Process(target=_simulate, args=args))
                children[-1].start()
                theirs.close()
                pipes.append(ours)
            _answers(pipes)
            joined_s = time.monotonic() - begun
            process = collector._process
            assert process is not None
            before_s, begun = _processor_s(process.pid), time.monotonic()
            latencies = sorted(s for some in _answers(pipes, go=True) for s in some)
            seconds = time.monotonic() - begun
            result = {
                "clients": clients,
                "joined_s": joined_s,
                "rows_per_s": clients * rows * rounds / seconds,
                "median_s": statistics.median(latencies),
                "longest_s": latencies[-1],
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


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("clients", type=int, nargs="*", default=[100, 1000, 5000, 10000])
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--address")
    options = parser.parse_args()
    print("| clients | joined | rows/s | flush, median | longest | descriptors | memory | processor |")
    print("|---|---|---|---|---|---|---|---|")
    for clients in options.clients:
        one = measured(clients, rows=options.rows, rounds=options.rounds, address=options.address)
        print(
            f"| {clients:,} | {one['joined_s']:.1f} s | {one['rows_per_s']:,.0f} | {one['median_s']:.2f} s | "
            f"{one['longest_s']:.2f} s | {one['descriptors']:,} | {one['peak_bytes'] / 2**20:,.0f} MiB | "
            f"{one['processor_s']:.1f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
