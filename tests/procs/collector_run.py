"""A collector and its clients as processes that tests can kill."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import select
import signal
import struct
import sys
import time
import warnings
from pathlib import Path

import h5py
import numpy as np

from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.process import run
from shardkeep.errors import CollectorError
from shardkeep.hdf5 import connect
from shardkeep.world import World
from tests.waiting import PATIENCE_S, eventually

__all__ = [
    "Child",
    "check_rows",
    "collecting",
    "start",
    "start_client",
    "start_collector",
    "stop",
    "wait_until_put_back",
]

# A fork takes milliseconds, where a new interpreter takes a second. No thread or socket is open here.
_FORK = multiprocessing.get_context("fork")
ACK = struct.Struct("<qq")


class Child:
    """A process and the bytes that it writes to the test."""

    def __init__(self, target, *args) -> None:
        self.read_end, write_end = os.pipe()
        self._said, self._is_over = b"", False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # fork beside pytest's own threads
            self.process = _FORK.Process(target=_guarded, args=(target, write_end, *args), daemon=True)
            self.process.start()
        os.close(write_end)
        self.pid = self.process.pid

    def wait_for_word(self, timeout_s: float = PATIENCE_S) -> bytes:
        """Return the first bytes that it writes."""
        assert select.select([self.read_end], [], [], timeout_s)[0], "nothing came"
        return os.read(self.read_end, 1 << 16)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def join(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end and return its exit code; read its output meanwhile, so that it cannot block."""
        deadline = time.monotonic() + timeout_s
        while not self._is_over:
            left_s = deadline - time.monotonic()
            if not select.select([self.read_end], [], [], max(left_s, 0))[0]:
                self.kill()
                self.process.join()
                raise AssertionError(f"{self.process.name} did not end within {timeout_s} s")
            piece = os.read(self.read_end, 1 << 16)
            self._said += piece
            if not piece:
                self._is_over = True
                os.close(self.read_end)
        self.process.join()
        return self.process.exitcode

    def said(self) -> bytes:
        """Return everything it wrote; it must have been joined."""
        assert self._is_over
        return self._said


def _guarded(target, write_end, *args) -> None:
    code = 1
    try:
        target(write_end, *args)
        code = 0
    except BaseException as error:
        import traceback

        if not isinstance(error, SystemExit):
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def start(target, *args) -> Child:
    return Child(target, *args)


def _collect(write_end, path, options) -> None:
    settings = Settings(**{"address": "", **options, "place": path})
    with open(f"{path}.log", "a") as log:
        run(settings, Events(log, "lines"), ready=lambda address: os.write(write_end, address.encode()))


def start_collector(path, **options) -> Child:
    child = Child(_collect, str(path), options)
    child.address = child.wait_for_word().decode()
    assert child.address, Path(f"{path}.log").read_text()
    return child


def stop(collector: Child) -> None:
    os.kill(collector.pid, signal.SIGTERM)
    assert collector.join() == 0


@contextlib.contextmanager
def collecting(path, **options):
    """Yield a forked collector, which starts ten times as fast as a `Collector`."""
    collector = start_collector(path, **options)
    collector.connect = lambda world: connect(collector.address, world)
    try:
        yield collector
    finally:
        stop(collector)


def wait_until_put_back(client) -> None:
    """Wait until a collector has found its file again, and stored the rows."""

    def is_stored() -> bool:
        try:
            client.flush()
        except CollectorError as error:
            assert "removed, moved or replaced" in str(error)
            return False
        return True

    eventually(is_stored)


def _append_until_stopped(write_end, place, rank, incarnation, seed, go_on) -> None:
    chance = random.Random(seed)
    row = texts = 0
    with connect(place, World(rank=rank, size=4), timeout_s=PATIENCE_S) as client:
        os.write(write_end, ACK.pack(0, 0))
        while go_on.value:
            count = chance.choice([1, 1, 7, 300, 3000])
            block = np.empty((count, 16), "i8")
            block[:, 0], block[:, 1] = rank, incarnation
            block[:, 2:] = np.arange(row, row + count)[:, None]
            client.append("x", block)
            row += count
            if count < 10:
                client.append("t", [f"{rank} {incarnation} {i}" for i in range(texts, texts + count)])
                texts += count
            if chance.random() < 0.2:
                client.flush()
                os.write(write_end, ACK.pack(row, texts))
            elif chance.random() < 0.3:
                time.sleep(chance.random() * 0.01)
    os.write(write_end, ACK.pack(row, texts))


def flag():
    return _FORK.Value("b", 1, lock=False)


def start_client(place, rank, incarnation, seed, go_on) -> Child:
    child = Child(_append_until_stopped, str(place), rank, incarnation, seed, go_on)
    child.rank, child.incarnation = rank, incarnation
    return child


def check_rows(path, acknowledged: dict[tuple[int, int], tuple[int, int]]) -> int:
    """Check that the rows of each client are complete up to the acknowledged one, in order, each once."""
    with h5py.File(path) as file:
        rows = file["x"][:] if "x" in file else np.empty((0, 16), "i8")
        texts = file["t"].asstr()[:].tolist() if "t" in file else []
    said: dict[tuple[int, int], list[int]] = {}
    for text in texts:
        rank, incarnation, number = map(int, text.split())
        said.setdefault((rank, incarnation), []).append(number)
    for who, (least, least_texts) in acknowledged.items():
        mine = rows[(rows[:, 0] == who[0]) & (rows[:, 1] == who[1])]
        assert (mine[:, 2:] == np.arange(len(mine))[:, None]).all(), who
        assert len(mine) >= least, who
        numbers = said.get(who, [])
        assert numbers == list(range(len(numbers))), who
        assert len(numbers) >= least_texts, who
    return len(rows)
