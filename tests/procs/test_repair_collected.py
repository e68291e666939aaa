"""SIGKILL of a collector at random instants, and a repair of what it leaves."""

from __future__ import annotations

import contextlib
import json
import random
import time

import h5py
import numpy as np
import pytest

from shardkeep.errors import CollectorError, LockHeldError
from shardkeep.hdf5 import connect
from shardkeep.jobs.repair import repair
from shardkeep.world import World
from tests.damaged_runs import tree
from tests.procs.collector_run import start_collector, stop


@pytest.mark.parametrize("seed", range(4))
def test_flushed_rows_are_in_the_new_file(tmp_path, seed):
    chance = random.Random(seed)
    (tmp_path / "run").mkdir()
    path, output = tmp_path / "run" / "all.h5", tmp_path / "new.h5"
    collector = start_collector(path, durability=chance.choice(["fsync", "flush"]))
    client = connect(str(path), World(rank=0, size=1), timeout_s=5)
    client.declare("keyed", "i8", rows=100_000)
    client.declare("packed", "i8", compression="gzip", chunk_rows=100)
    flushed = 0
    end = time.monotonic() + 0.2 + chance.random()
    while time.monotonic() < end:
        count = chance.randrange(1, 40)
        numbers = np.arange(flushed, flushed + count)
        client.append("rows", numbers)
        client.append("packed", numbers)
        client.append("keyed", numbers + 1, key=numbers)
        client.flush()
        flushed += count
    with pytest.raises(LockHeldError, match=r"is being written by .* then repair the file"):
        repair(path, output)
    collector.kill()
    collector.join()
    with contextlib.suppress(CollectorError):
        client.close()
    before = tree(tmp_path / "run")
    report = repair(path, output)
    assert tree(tmp_path / "run") == before
    assert report.ok and report.files[0].kind == "collected"
    with h5py.File(output) as file:
        for name in ("rows", "packed"):
            assert len(file[name]) >= flushed
            assert (file[name][:] == np.arange(len(file[name]))).all()
        written = file["_collector/writers/keyed"][:] > 0
        assert written[:flushed].all()
        assert (file["keyed"][:] == np.where(written, np.arange(100_000) + 1, 0)).all()
    json.dumps(report.to_dict())
    again = start_collector(output)
    stop(again)
