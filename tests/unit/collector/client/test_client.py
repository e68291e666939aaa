"""Rows that a client buffers, splits and refuses before anything is sent.

Covers `shardkeep.collector.client.blocking_calls` and `shardkeep.collector.client.discovery`.
"""

import pickle
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.collector.client.discovery import Finder
from shardkeep.errors import CollectorError, LockError, SchemaError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.procs.collector_run import collecting, start
from tests.waiting import PATIENCE_S, eventually

WORLD = World(rank=0, size=1)
LEAST_MEMORY = 16 << 20


def test_rows_that_are_buffered_together_may_be_more_than_one_message(tmp_path):
    path = tmp_path / "all.h5"
    with (
        Collector(path, memory_bytes=LEAST_MEMORY, durability="flush", drain_s=60) as collector,
        collector.connect(WORLD, timeout_s=100) as client,
    ):
        for _ in range(2):
            for number in range(8):
                client.append(f"numbers/{number}", np.full(60_000, number, "f8"))
        client.append("text", ["é" * 5_000] * 600)
        client.append("text", ["last"])
        kind = np.dtype([("name", h5py.string_dtype()), ("x", "f4")])
        client.append("both", np.array([("b" * 10_000, 1.5)] * 500, kind))
        client.flush()
    with h5py.File(path) as file:
        for number in range(8):
            assert file[f"numbers/{number}"].shape == (120_000,)
            assert file[f"numbers/{number}"][-1] == number
        assert file["text"].shape == (601,)
        assert file["text"][600] == b"last"
        assert len(file["text"][599]) == 10_000
        assert file["both"].shape == (500,)


def test_rows_that_no_collector_takes_are_refused_at_once_and_add_nothing(tmp_path):
    path = tmp_path / "all.h5"
    with (
        Collector(path, memory_bytes=LEAST_MEMORY, durability="flush", drain_s=60) as collector,
        collector.connect(WORLD, timeout_s=100) as client,
    ):
        with pytest.raises(SchemaError, match="too long for this collector"):
            client.append("numbers", np.zeros((1, 1_000_000)))
        client.append("text", [])  # of no type
        client.append("text", ["short"])
        for name in ("text", "more"):
            with pytest.raises(SchemaError, match="too long for this collector"):
                client.append(name, ["x" * 4_000_000])
        with pytest.raises(SchemaError, match="a name of more than"):
            client.append("n" * 70_000, 1.0)
        kind = np.dtype([("name", h5py.string_dtype()), ("x", "f4")])
        both = np.array([("short", 1.5)], kind)
        client.append("both", both)
        with pytest.raises(SchemaError, match="too long for this collector"):
            client.append("both", np.array([("x" * 4_000_000, 1.5)], both.dtype))
        for _ in range(2):
            with pytest.raises(SchemaError, match="9007199254740993 would be rounded"):
                client.append("mixed", [2**53 + 1, 0.25])
            client.append("mixed", [2**53, 0.25])
        client.append("text", ["x" * 1_900_000])
        client.flush()
    with h5py.File(path) as file:
        assert set(file) == {"_collector", "both", "mixed", "text"}
        assert file["mixed"][:].tolist() == [2.0**53, 0.25] * 2
        assert file["both"].shape == (1,)
        assert file["text"].shape == (2,)


_SCALARS = [0.5, 1e39, -1e300, float("inf"), float("nan"), 3, 2**31, -(2**63), 2**64, True, "x", 1j]
_SCALARS += [kind(2) for kind in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)]
_SCALARS += [np.array(one) for one in (0.5, np.float32(0.5), np.int32(7), 7)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_a_scalar_is_stored_and_refused_as_the_same_value_in_rows_is(tmp_path, dtype):
    """Scalars have a code path of their own, which stores and refuses the same."""
    path = tmp_path / "all.h5"
    expected = []
    with (
        collecting(path, durability="flush") as collector,
        connect(collector.address, WORLD, timeout_s=100) as client,
    ):
        client.declare("one", dtype)
        client.declare("rows", dtype)
        for value in _SCALARS:
            refused = []
            for name, rows in (("one", value), ("one", value), ("rows", np.asarray(value)[None])):
                rows = [value] if name == "rows" and not hasattr(value, "dtype") else rows
                try:
                    client.append(name, rows)
                except SchemaError:
                    refused.append(name)
            assert refused in ([], ["one", "one", "rows"]), value
            expected += [] if refused else [value, value]
        client.append("one", np.asarray(expected[:1] * 2, dtype))  # what was accepted once is so again
        client.append("one", np.array(expected[0], dtype))
        client.flush()
    with h5py.File(path) as file:
        assert np.array_equal(file["one"][:-3], np.array(expected, dtype), equal_nan=True)
        assert np.array_equal(file["rows"][:], np.array(expected[::2], dtype), equal_nan=True)
        assert len(file["one"]) == len(expected) + 3


def test_large_rows_use_shared_memory_from_the_first_chunk_on(tmp_path):
    path = tmp_path / "all.h5"
    with (
        Collector(path, durability="flush", drain_s=60) as collector,
        collector.connect(WORLD, timeout_s=100) as client,
    ):
        client.append("loss", 1.5)
        client.append("text", ["x" * 5000])
        client.flush()
        assert client._state.outbox.slots is None
        client.append("rows", np.zeros((1, 8192), "f4"))
        eventually(lambda: client._state.outbox.slots is not None)
        for number in range(40):
            client.append("rows", np.full((1, 8192), number, "f4"))
        assert client._state.datasets["rows"].chunk.slot is not None
    with h5py.File(path) as file:
        assert file["rows"][:, 5].tolist() == [0, *range(40)]


def _copy(client):
    return pickle.loads(pickle.dumps(client))


def _joined(path):
    return Path(f"{path}.log").read_text().count("joined")


def _all_at_once(client, count):
    """Make the first calls of a client in many threads."""
    ready = threading.Barrier(count)

    def call(number):
        ready.wait()
        client.append("x", [number])
        client.flush()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(call, range(count)))
    client.close()


def test_the_first_calls_of_many_threads_start_one_sender(tmp_path):
    path = tmp_path / "all.h5"
    switching = sys.getswitchinterval()
    with collecting(path, durability="flush") as collector:
        client = collector.connect(WORLD)
        for turn in range(5):
            copy = _copy(client)
            sys.setswitchinterval(1e-6)
            try:
                _all_at_once(copy, 8)
            finally:
                sys.setswitchinterval(switching)
            assert _joined(path) == 2 + turn
        held, may_end = threading.Event(), threading.Event()
        other = threading.Thread(target=client._opening.run, args=(lambda: held.set() or may_end.wait(),))
        other.start()
        held.wait()  # a lock that no thread would release in a child
        try:
            child = start(lambda _: _all_at_once(client, 8))
            assert child.join() == 0
        finally:
            may_end.set()
            other.join()
        assert _joined(path) == 7
        client.close()
    with h5py.File(path) as file:
        assert sorted(file["x"][:].tolist()) == sorted([*range(8)] * 6)


@pytest.mark.parametrize("call", ["append", "close"])
def test_a_signal_handler_that_interrupts_the_first_call_is_refused_or_closes(tmp_path, monkeypatch, call):
    said = []

    def handler(*_):
        try:
            copy.append("x", [2]) if call == "append" else copy.close()
        except LockError as error:
            said.append(str(error))

    class Interrupted(Finder):
        def __init__(self, *values):
            super().__init__(*values)
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with collecting(tmp_path / "all.h5", durability="flush", drain_s=1) as collector:
            client = collector.connect(WORLD)
            copy = _copy(client)
            monkeypatch.setattr("shardkeep.collector.client.client.Finder", Interrupted)
            if call == "append":
                copy.append("x", [1])
                assert "in the middle of another call" in said[0]
            else:
                with pytest.raises(CollectorError, match="is closed"):
                    copy.append("x", [1])
            copy.close()
            client.close()
            assert _joined(tmp_path / "all.h5") <= 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    with h5py.File(tmp_path / "all.h5") as file:
        assert [file[name][:].tolist() for name in file if name == "x"] == [[1]] * (call == "append")


def test_a_first_call_that_finds_no_collector_may_be_repeated(tmp_path):
    with collecting(tmp_path / "all.h5", durability="flush", drain_s=1) as collector:
        client = collector.connect(WORLD)
        copy = _copy(client)
        client.close()
    copy.timeout_s = 0.2
    for _ in range(2):
        with pytest.raises(CollectorError, match="did not answer within"):
            copy.append("x", [1])
    copy.timeout_s = PATIENCE_S
    with collecting(tmp_path / "all.h5", durability="flush"):
        copy.append("x", [1])
        copy.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1]
