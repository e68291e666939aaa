"""What a client holds back, splits and refuses before anything is sent."""

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World
from tests.procs.collector_run import collecting
from tests.waiting import eventually

WORLD = World(rank=0, size=1)
LEAST_MEMORY = 16 << 20


def test_rows_that_wait_together_may_be_more_than_one_message(tmp_path):
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


def test_what_no_collector_takes_is_refused_at_once_and_leaves_nothing(tmp_path):
    path = tmp_path / "all.h5"
    with (
        Collector(path, memory_bytes=LEAST_MEMORY, durability="flush", drain_s=60) as collector,
        collector.connect(WORLD, timeout_s=100) as client,
    ):
        with pytest.raises(SchemaError, match="too long for this collector"):
            client.append("numbers", np.zeros((1, 1_000_000)))
        client.append("text", ["short"])
        for name in ("text", "more"):
            with pytest.raises(SchemaError, match="too long for this collector"):
                client.append(name, ["x" * 4_000_000])
        with pytest.raises(SchemaError, match="a name of more than"):
            client.append("n" * 70_000, 1.0)
        client.append("text", ["x" * 1_900_000])
        client.flush()
    with h5py.File(path) as file:
        assert set(file) == {"_collector", "text"}
        assert file["text"].shape == (2,)


_SCALARS = [0.5, 1e39, -1e300, float("inf"), float("nan"), 3, 2**31, -(2**63), 2**64, True, "x", 1j]
_SCALARS += [kind(2) for kind in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)]
_SCALARS += [np.array(one) for one in (0.5, np.float32(0.5), np.int32(7), 7)]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_one_value_is_taken_as_the_same_value_in_rows_is(tmp_path, dtype):
    """The way for scalars is another one than that for rows; what it stores and refuses is the same."""
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


def test_large_rows_go_through_shared_memory_from_the_beginning(tmp_path):
    path = tmp_path / "all.h5"
    with (
        Collector(path, durability="flush", drain_s=60) as collector,
        collector.connect(WORLD, timeout_s=100) as client,
    ):
        client.append("loss", 1.5)
        client.append("text", ["x" * 5000])
        client.flush()
        assert client._link.outbox.slots is None
        client.append("rows", np.zeros((1, 8192), "f4"))
        eventually(lambda: client._tray.slots is not None)
        for number in range(40):
            client.append("rows", np.full((1, 8192), number, "f4"))
        assert client._tray.pens["rows"].sheet.slot is not None
    with h5py.File(path) as file:
        assert file["rows"][:, 5].tolist() == [0, *range(40)]
