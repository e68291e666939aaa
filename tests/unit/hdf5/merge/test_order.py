"""Tests of the order.

Covers `shardkeep.hdf5.merge.keyed_rows` and `shardkeep.hdf5.merge.planner`.
"""

import itertools
import os

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import CorruptDataError, PlanError, SchemaError
from shardkeep.hdf5 import WorkerFile, merge, plan_merge, verify
from shardkeep.hdf5.merge import keyed_rows, planner
from shardkeep.world import World

TEXT = h5py.string_dtype()


def _run(run, commits, extra=None):
    """Commit ``commits[rank][step]`` lists of keys, with rows that tell where they come from."""
    for rank, steps in enumerate(commits):
        with WorkerFile(run, World(rank=rank, size=len(commits))) as out:
            for step, keys in enumerate(steps):
                keys = np.asarray(keys, "i8")
                out.append("id", keys)
                out.append("x", np.stack([keys * 10, np.full_like(keys, rank)], 1).astype("f4"))
                out.append("t", np.array([f"row {key}" for key in keys], TEXT))
                if extra is not None:
                    out.append("per_step", [rank + step / 10])
                out.commit(step=step)
    return run


def _provenance(path):
    with h5py.File(path) as file:
        return [
            tuple(v.decode() if isinstance(v, bytes) else v for v in row)
            for row in file["_provenance"][:].tolist()
        ]


def _check_provenance(path, folder):
    """Every row of the result is the row of the source that the table names."""
    with h5py.File(path) as file:
        root = file["_provenance"].attrs["root"]
        covered = {}
        for row in file["_provenance"][:]:
            name, first, rows = row["dataset"].decode(), row["first_row"], row["rows"]
            assert covered.get(name, 0) == first
            covered[name] = first + rows
            with h5py.File(f"{root}/{row['file'].decode()}") as source:
                there = source[name][row["source_row"] : row["source_row"] + rows]
                assert (file[name][first : first + rows] == there).all()
            if row["rank"] >= 0:
                assert f"rank-{row['rank']:05d}/" in row["file"].decode()
                assert f"-step-{row['step']}." in row["file"].decode()
        for name, rows in covered.items():
            assert file[name].shape[0] == rows


COMMITS = [[[0, 3], [6, 9]], [[1, 4], [7]], [[2, 5], [8]]]


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_rows_are_ordered_by_step_then_rank(tmp_path, mode):
    run = _run(tmp_path / "run", COMMITS)
    report = merge(run, tmp_path / "all.h5", mode=mode, order_by="step")
    assert report.order_by == "step"
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["id"][:].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 8]
    assert [row[:2] for row in _provenance(tmp_path / "all.h5") if row[2] == "id"] == [
        (0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1),
    ]  # fmt: skip
    _check_provenance(tmp_path / "all.h5", run)
    assert verify(tmp_path / "all.h5").ok


def test_plain_files_cannot_be_ordered_by_step(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    with pytest.raises(PlanError, match="has no step"):
        merge([tmp_path / "a.h5"], tmp_path / "all.h5", order_by="step")


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_rows_are_put_in_the_order_of_a_key(tmp_path, mode):
    run = _run(tmp_path / "run", COMMITS, extra=True)
    report = merge(run, tmp_path / "all.h5", mode=mode, order_by="id", incomplete="refuse")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["id"][:].tolist() == list(range(10))
        assert file["x"][:].tolist() == [[i * 10, 0 if i == 9 else i % 3] for i in range(10)]
        assert file["t"].asstr()[:].tolist() == [f"row {i}" for i in range(10)]
        np.testing.assert_allclose(file["per_step"][:], [0, 0.1, 1, 1.1, 2, 2.1])
        assert file["_provenance"].attrs["order_by"] == "id"
    assert "by rank, since it has no row for each key" in report.ways["per_step"]
    _check_provenance(tmp_path / "all.h5", run)
    assert verify(tmp_path / "all.h5").ok


def test_neighbours_of_one_source_stay_one_run(tmp_path):
    run = _run(tmp_path / "run", [[[4, 5, 6], [0, 1]], [[7, 8], [2, 3]]])
    merge(run, tmp_path / "all.h5", order_by="id")
    rows = [
        (r, first, rows, at)
        for r, _, name, _, first, rows, at in _provenance(tmp_path / "all.h5")
        if name == "id"
    ]
    assert rows == [(0, 0, 2, 0), (1, 2, 2, 0), (0, 4, 3, 0), (1, 7, 2, 0)]


def test_a_key_that_is_there_twice_names_the_ranks(tmp_path):
    run = _run(tmp_path / "run", [[[0, 1]], [[2, 1]], [[0, 3]]])
    with pytest.raises(
        CorruptDataError, match=r"'id' 0 is there twice, of rank 0 \(step 0\) and rank 2 .*and 1 more"
    ):
        merge(run, tmp_path / "all.h5", order_by="id")
    assert not (tmp_path / "all.h5").exists()


def test_missing_keys_are_a_finding(tmp_path):
    run = _run(tmp_path / "run", [[[2, 9]], [[3, 5]]])
    (text,) = plan_merge(run, tmp_path / "all.h5", order_by="id").findings
    assert text == "6 of 10 values of 'id' are missing: 0 to 1, 4, 6 to 8"
    with pytest.raises(CorruptDataError, match="are missing"):
        merge(run, tmp_path / "all.h5", order_by="id", incomplete="refuse")
    merge(run, tmp_path / "all.h5", order_by="id", incomplete="allow")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["id"][:].tolist() == [2, 3, 5, 9]


@pytest.mark.parametrize("name", ["x", "t", "gone"])
def test_a_dataset_that_is_not_one_integer_per_row_cannot_be_a_key(tmp_path, name):
    run = _run(tmp_path / "run", COMMITS)
    with pytest.raises((SchemaError, PlanError), match="order_by"):
        merge(run, tmp_path / "all.h5", order_by=name)


def test_rows_that_were_not_appended_with_their_keys_are_refused(tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            for step in range(2):
                out.append("id", [rank * 4 + step * 2, rank * 4 + step * 2 + 1])
                out.append("x", [0.0] * (2 - rank * step))
                out.commit(step=step)
    with pytest.raises(SchemaError, match=r"'x' has 1 rows in .*rank-00001.* for 2 values of 'id'"):
        merge(tmp_path / "run", tmp_path / "all.h5", order_by="id")


def test_a_virtual_file_of_too_many_runs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "_MOST_VIRTUAL_RUNS", 5)
    run = _run(tmp_path / "run", COMMITS)
    with pytest.raises(PlanError, match='use mode="copy"'):
        merge(run, tmp_path / "all.h5", order_by="id", mode="virtual")


@settings(max_examples=12)
@given(
    keys=st.permutations(range(40)),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    window=st.sampled_from([1, 3, 7, 1000]),
    compression=st.sampled_from([None, "gzip"]),
)
def test_any_order_is_sorted_through_the_scratch_file(tmp_path_factory, keys, cuts, window, compression):
    """Windows of a few rows, none of them kept in memory."""
    folder = tmp_path_factory.mktemp("keyed")
    bounds = [0, *sorted(cuts), 40]
    files = []
    for i, (a, b) in enumerate(itertools.pairwise(bounds)):
        part = np.asarray(keys[a:b], "i8")
        files.append(folder / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            options = {"compression": compression, "chunks": (3,), "maxshape": (None,)} if compression else {}
            file.create_dataset("id", data=part, **options)
            file.create_dataset("x", data=np.stack([part, -part], 1).astype("i2").reshape(-1, 2))
            file.create_dataset(
                "t", data=[f"{key}" * (key % 3) for key in part], dtype=TEXT, shape=part.shape
            )
            file.create_dataset("c", data=np.array([(k, k / 2) for k in part], [("a", "i1"), ("b", ">f8")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_rows, "WINDOW_BYTES", window * 8)
        patch.setattr(keyed_rows, "_WINDOW_OBJECTS", window)
        patch.setattr(keyed_rows.Scratch, "take_memory", lambda self, size_bytes: False)
        merge(files, folder / "all.h5", order_by="id")
    assert sorted(path.name for path in folder.iterdir()) == sorted([*(p.name for p in files), "all.h5"])
    with h5py.File(folder / "all.h5") as file:
        assert file["id"][:].tolist() == list(range(40))
        assert file["x"][:].tolist() == [[i, -i] for i in range(40)]
        assert file["t"].asstr()[:].tolist() == [f"{i}" * (i % 3) for i in range(40)]
        assert file["c"][:].tolist() == [(i, i / 2) for i in range(40)]
    _check_provenance(folder / "all.h5", folder)


def test_datasets_that_wait_for_their_order_share_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(keyed_rows, "_SHARED_BYTES", 100)
    keys = np.random.default_rng(0).permutation(60)
    for number, part in enumerate(np.split(keys, 3)):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["id"] = part
            for name in range(20):
                file[f"x{name}"] = part * name
                file.create_dataset(f"t{name}", data=[f"{name} {key}" for key in part], dtype=TEXT)
    before, most = len(os.listdir("/proc/self/fd")), 0

    def watch(done, total):
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    merge(sorted(tmp_path.glob("?.h5")), tmp_path / "all.h5", order_by="id", progress=watch)
    assert most - before < 10
    with h5py.File(tmp_path / "all.h5") as file:
        for name in range(20):
            assert file[f"x{name}"][:].tolist() == [key * name for key in range(60)]
            assert file[f"t{name}"].asstr()[:].tolist() == [f"{name} {key}" for key in range(60)]


def test_unsigned_keys_of_64_bits_are_sorted(tmp_path):
    keys = np.array([2**64 - 1, 0, 2**63], "u8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["id"], file["x"] = keys, [1, 2, 3]
    merge([tmp_path / "a.h5"], tmp_path / "all.h5", order_by="id", incomplete="allow")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [2, 3, 1]


def test_a_row_lost_on_the_way_is_noticed(tmp_path, monkeypatch):
    run = _run(tmp_path / "run", COMMITS)
    original = keyed_rows.KeyedRows._window

    def window(self, start, stop):
        rows = original(self, start, stop)
        if self.plan.name == "x":
            rows[1] = rows[0]
        return rows

    monkeypatch.setattr(keyed_rows.KeyedRows, "_window", window)
    with pytest.raises(CorruptDataError, match="changed while they were put in order"):
        merge(run, tmp_path / "all.h5", order_by="id")
    assert not (tmp_path / "all.h5").exists()
