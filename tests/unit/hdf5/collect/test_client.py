"""What a client holds back, splits and refuses before anything is sent."""

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import Collector
from shardkeep.world import World

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
