import os
import random

import numpy as np
import pytest

from shardkeep import verify
from shardkeep.hdf5 import WorkerFile
from shardkeep.hdf5 import verify as verify_hdf5
from shardkeep.jobs.verification.segments import Segments
from shardkeep.world import World


@pytest.fixture
def paths(tmp_path):
    """Two segments of the same structure, with more datasets than a header has links."""
    found = []
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank, 2), durable=False) as out:
            for number in range(12):
                out.append(f"x{number}", np.arange(3.0) + rank + number)
            out.commit(step=0)
        found.append(str(tmp_path / f"run/rank-{rank:05d}/00000000-step-0.h5"))
    return found


@pytest.fixture
def segments(paths):
    """The first segment is known."""
    known = Segments()
    known.learn(paths[0], verify_hdf5(paths[0]))
    return known


def test_a_segment_of_a_known_structure_has_the_verdict_of_hdf5(paths, segments):
    done = []
    found = segments.verdict(paths[1], done.append)
    assert found == verify_hdf5(paths[1])
    assert (found.kind, found.rows, found.record.rank, sum(done)) == ("segment", 36, 1, 12 * 24)


def test_a_segment_of_another_structure_is_left_to_hdf5(tmp_path, segments):
    for rank, options in enumerate([{"compression": "gzip"}, {}]):
        with WorkerFile(tmp_path / "other", World(rank, 2), durable=False) as out:
            out.declare("y", "i2", (), **options)
            out.append("y", [1, 2])
            out.put("value", 3)
            out.commit(step=0)
        path = str(tmp_path / f"other/rank-{rank:05d}/00000000-step-0.h5")
        assert segments.verdict(path, print) is None


def test_no_damage_is_overlooked(paths, segments):
    """Each changed byte is left to HDF5, unless HDF5 finds nothing there either."""
    with open(paths[1], "rb") as file:
        content = file.read()
    chance = random.Random(4)
    places = [chance.randrange(len(content)) for _ in range(400)]
    places += [content.index(mark) + 7 for mark in (b"FRHP", b"FHDB", b"BTLF", b"OHDR", b"_commit")]
    accepted = 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        with open(paths[1], "wb") as file:
            file.write(changed)
        if segments.verdict(paths[1], abs) is not None:
            accepted += 1
            assert verify_hdf5(paths[1]).ok, place
    assert accepted < len(places) // 2
    os.truncate(paths[1], len(content) - 1)
    assert segments.verdict(paths[1], abs) is None


def test_a_whole_run_is_verified(paths, tmp_path):
    assert verify(tmp_path / "run", threads=1).ok
    with open(paths[1], "r+b") as file:
        content = file.read()
        file.seek(content.index((np.arange(3.0) + 4).tobytes()))
        file.write(b"\xff")
    report = verify(tmp_path / "run", threads=1)
    assert [one.path for one in report.files if one.findings] == [paths[1]]
