"""The memory of a collector, in what is not under way but kept."""

import time
from pathlib import Path

import h5py
import numpy as np

from shardkeep.hdf5 import snapshot
from shardkeep.world import World
from tests.procs.collector_run import collecting
from tests.waiting import PATIENCE_S, eventually

MEMORY_BYTES = 16 << 20


def _resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def _shows(path, name):
    with snapshot(path) as file:
        return name in file


def test_a_reader_that_never_ends_and_rows_by_number(tmp_path):
    """Rows by number change what commits speak of; nothing of that may pile up until the reader ends."""
    path, row_bytes, count = tmp_path / "all.h5", 128 << 10, 640
    with (
        collecting(path, memory_bytes=MEMORY_BYTES, durability="flush") as collector,
        collector.connect(World(rank=0, size=1)) as client,
    ):
        client.timeout_s = PATIENCE_S
        client.declare("x", "u1", (row_bytes,), rows=count, chunk_rows=16)
        numbers = np.arange(count)
        blank = np.zeros((1, row_bytes), "u1")
        for number in numbers[::16]:  # now commits speak of every chunk
            client.append("x", blank, key=[number])
        client.flush()
        eventually(lambda: _shows(path, "x"))
        with snapshot(path) as file:
            before = file["x"].shape, list(file), _resident_bytes(collector.pid)
            for number in numbers[numbers % 16 > 0]:
                client.append("x", np.full((1, row_bytes), number % 256, "u1"), key=[number])
            client.append("new", 1.0)
            client.flush()
            time.sleep(0.2)
            assert (file["x"].shape, list(file)) == before[:2]
            grown = _resident_bytes(collector.pid) - before[2]
    assert grown < 2 * MEMORY_BYTES < row_bytes * count // 2
    with h5py.File(path) as file:
        assert (file["x"][:, -1] == np.where(numbers % 16, numbers % 256, 0)).all()
        assert len(file["new"]) == 1
