import os

import numpy as np
import pytest

from shardkeep.hdf5 import WorkerFile, merge, merged_sources, verify
from shardkeep.world import World


@pytest.fixture
def merged(tmp_path):
    for rank in range(6):
        with WorkerFile(tmp_path / "run", World(rank, 6), durable=False) as out:
            for name in "abc":
                out.append(name, np.arange(5.0) + 10 * rank)
            out.commit(step=0)
    merge(tmp_path / "run", tmp_path / "all.h5", mode="virtual")
    return tmp_path / "all.h5"


def segment(merged, rank):
    return merged.parent / f"run/rank-{rank:05d}/00000000-step-0.h5"


def test_sources_of_one_structure_are_read_without_hdf5(merged, monkeypatch):
    through_hdf5 = []
    opened = merged_sources.open_source
    monkeypatch.setattr(merged_sources, "open_source", lambda path: through_hdf5.append(path) or opened(path))
    done = []
    found = verify(merged, progress=done.append)
    assert (found.kind, found.rows, found.ok) == ("virtual", 90, True)
    assert through_hdf5 == [str(segment(merged, 0))]
    assert sum(done) >= 90 * 8


def test_each_changed_source_is_named(merged):
    for rank in (2, 4):
        content = segment(merged, rank).read_bytes()
        rows = (np.arange(5.0) + 10 * rank).tobytes()
        segment(merged, rank).write_bytes(content.replace(rows, bytes(40), 1))
    os.unlink(segment(merged, 5))
    found = verify(merged).findings
    assert len(found) == 3
    assert "rank-00002" in found[0] and "other rows of 'a'" in found[0]
    assert "rank-00004" in found[1] and "rank-00005" in found[2]


def test_a_source_that_a_commit_replaced_is_named(merged):
    """It is a whole segment of the same structure, with other rows."""
    with WorkerFile(merged.parent / "new", World(3, 6), durable=False) as out:
        for name in "abc":
            out.append(name, np.arange(5.0))
        out.commit(step=0)
    os.replace(merged.parent / "new/rank-00003/00000000-step-0.h5", segment(merged, 3))
    found = verify(merged).findings
    assert [text.split(" has ")[1] for text in found] == [
        f"other rows of {name!r} than when it was merged" for name in "abc"
    ]
