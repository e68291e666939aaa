"""What a collector and its clients are given as times and sizes."""

import pytest

from shardkeep.collector.protocol.settings import Settings
from shardkeep.errors import CollectorError, PlanError
from shardkeep.hdf5 import Collector, connect
from shardkeep.world import World

NO_TIMES = [-1, float("nan"), float("inf"), 1e12, None, "5", [1]]
NO_SIZES = [0, -5, None, 1.5, "64MB", 1 << 70]
WORLD = World(rank=0, size=1)


@pytest.mark.parametrize("value", NO_TIMES)
def test_what_is_no_time(tmp_path, value):
    with pytest.raises(PlanError, match=r"timeout_s=.* is no time"):
        connect(tmp_path, WORLD, timeout_s=value)
    with pytest.raises(PlanError, match=r"drain_s=.* is no time"):
        Settings(str(tmp_path / "all.h5"), "", drain_s=value)


@pytest.mark.parametrize("value", NO_SIZES)
def test_what_is_no_size(tmp_path, value):
    with pytest.raises(PlanError, match=r"memory_bytes=.* is no size"):
        connect(tmp_path, WORLD, memory_bytes=value)
    with pytest.raises(PlanError, match="memory"):
        Settings(str(tmp_path / "all.h5"), "", memory_bytes=value)


def test_no_time_at_all_is_a_time(tmp_path):
    with pytest.raises(CollectorError, match="within 0 s"):
        connect(tmp_path, WORLD, timeout_s=0)


def test_the_time_of_a_client_may_be_changed_to_a_time(tmp_path):
    with Collector(tmp_path / "all.h5") as collector, collector.connect(WORLD) as client:
        client.append("x", 1.0)
        for value in NO_TIMES:
            with pytest.raises(PlanError, match="is no time"):
                client.timeout_s = value
            if value is not None:
                with pytest.raises(PlanError, match="is no time"):
                    client.flush(value)
        client.timeout_s = 50
        client.flush()
