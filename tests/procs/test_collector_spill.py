"""Clients that spill and are killed, one after the other: the next one takes over the spill file."""

import os
import random
import time

import h5py
import numpy as np
import pytest

from shardkeep.hdf5 import connect
from shardkeep.world import World
from tests.procs.collector_run import ACK, collecting, start, start_collector, stop
from tests.waiting import PATIENCE_S


def _flush_and_say(write_end, place, folder, life, rows):
    options = {"on_full": "spill", "spill_dir": folder, "timeout_s": PATIENCE_S}
    client = connect(place, World(rank=0, size=1), **options)
    for row in range(rows):
        client.append("x", [(life, row)])
        client.flush()
    os.write(write_end, b"flushed")
    time.sleep(PATIENCE_S)


def test_batches_of_a_client_are_not_taken_for_those_of_its_killed_predecessor(tmp_path):
    rows = 4
    with collecting(tmp_path / "all.h5", durability="flush") as collector:
        for life in range(3):
            child = start(_flush_and_say, collector.address, str(tmp_path / "spill"), life, rows)
            child.wait_for_word()
            child.kill()
            child.join()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [[life, row] for life in range(3) for row in range(rows)]


def _append_and_spill(write_end, place, folder, life, seed):
    chance = random.Random(seed)
    options = {"on_full": "spill", "spill_dir": folder, "memory_bytes": 1 << 16, "timeout_s": PATIENCE_S}
    client = connect(place, World(rank=0, size=1), **options)
    os.write(write_end, ACK.pack(0, 0))
    row = 0
    while True:
        count = chance.choice([1, 3, 300])
        block = np.empty((count, 16), "i8")
        block[:, 0], block[:, 1:] = life, np.arange(row, row + count)[:, None]
        client.append("x", block)
        row += count
        if chance.random() < 0.1 and client._state.is_ready:
            client.flush()
            os.write(write_end, ACK.pack(row, 0))
        elif chance.random() < 0.3:
            time.sleep(chance.random() * 0.01)


def _run_of_lives(tmp_path, lives, seed):
    """Kill client after client, with a collector that is sometimes there; nothing acknowledged is lost."""
    chance = random.Random(seed)
    (tmp_path / "run").mkdir()
    collector = None
    flushed = []
    for life in range(lives):
        if collector is None and chance.random() < 0.7:
            collector = start_collector(tmp_path / "run/all.h5", durability="flush")
        elif collector is not None and chance.random() < 0.3:
            collector.kill()
            collector.join()
            collector = None
        child = start(_append_and_spill, str(tmp_path / "run"), str(tmp_path / "spill"), life, seed + life)
        child.wait_for_word()
        time.sleep(chance.random() * 0.3)
        child.kill()
        child.join()
        acks = child.said()
        flushed.append(max((ACK.unpack_from(acks, at)[0] for at in range(0, len(acks), ACK.size)), default=0))
    collector = collector or start_collector(tmp_path / "run/all.h5", durability="flush")
    options = {"on_full": "spill", "spill_dir": tmp_path / "spill", "timeout_s": PATIENCE_S}
    with connect(tmp_path / "run", World(rank=0, size=1), **options) as client:
        client.append("x", np.full((1, 16), -1))
    stop(collector)
    assert os.listdir(tmp_path / "spill") == []
    with h5py.File(tmp_path / "run/all.h5") as file:
        rows = file["x"][:]
    assert (rows[-1] == -1).all()
    rows = rows[:-1]
    assert (np.diff(rows[:, 0]) >= 0).all()
    for life, least in enumerate(flushed):
        mine = rows[rows[:, 0] == life][:, 1:]
        assert (mine == mine[:, :1]).all()
        assert (np.diff(mine[:, 0]) > 0).all(), life  # each once, in order; those in memory only have died
        assert mine[:least, 0].tolist() == list(range(least)), life


def test_flushed_rows_survive_a_chain_of_killed_clients(tmp_path):
    _run_of_lives(tmp_path, 6, 6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 1000, 100))
def test_flushed_rows_survive_many_chains_of_killed_clients(tmp_path, seed):
    _run_of_lives(tmp_path, 20, seed)
