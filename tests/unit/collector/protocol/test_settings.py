"""Times and sizes among the options of a collector and its clients."""

import pytest

from shardkeep.collector.protocol.settings import Settings
from shardkeep.errors import CollectorError, PlanError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World

NO_TIMES = [-1, float("nan"), float("inf"), 1e12, None, "5", [1]]
NO_SIZES = [0, -5, None, 1.5, "64MB", 1 << 70]
WORLD = World(rank=0, size=1)


@pytest.mark.parametrize("value", NO_TIMES)
def test_an_invalid_time_is_refused(tmp_path, value):
    with pytest.raises(PlanError, match=r"timeout_s must be a number"):
        connect(tmp_path, WORLD, timeout_s=value)
    with pytest.raises(PlanError, match=r"drain_s must be a number"):
        Settings(str(tmp_path / "all.h5"), "", drain_s=value)


@pytest.mark.parametrize("value", NO_SIZES)
def test_an_invalid_size_is_refused(tmp_path, value):
    with pytest.raises(PlanError, match=r"memory_bytes must be a positive int"):
        connect(tmp_path, WORLD, memory_bytes=value)
    with pytest.raises(PlanError, match="memory"):
        Settings(str(tmp_path / "all.h5"), "", memory_bytes=value)


def test_the_memory_of_a_process_is_refused():
    with pytest.raises(PlanError, match="memory of one process"):
        Settings("memory://bucket/all.h5", "")


def test_a_timeout_of_zero_is_valid(tmp_path):
    with pytest.raises(CollectorError, match="within 0 s"):
        connect(tmp_path, WORLD, timeout_s=0)


def test_the_timeout_of_a_client_may_only_be_changed_to_a_valid_one(tmp_path):
    with Collector(tmp_path / "all.h5") as collector, collector.connect(WORLD) as client:
        client.append("x", 1.0)
        for value in NO_TIMES:
            with pytest.raises(PlanError, match="must be a number"):
                client.timeout_s = value
            if value is not None:
                with pytest.raises(PlanError, match="must be a number"):
                    client.flush(value)
        client.timeout_s = 50
        client.flush()
