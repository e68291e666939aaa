"""Tests of the templates.

Covers `shardkeep.hdf5.sources.inspection`.
"""

import contextlib
import dataclasses
import fcntl
import os
import random

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep import _core
from shardkeep.errors import LockError, ShardkeepError, TruncatedFileError
from shardkeep.hdf5 import merge
from shardkeep.hdf5.sources import templates
from shardkeep.hdf5.sources.inspection import Inspector
from shardkeep.hdf5.sources.templates import inspect_all
from shardkeep.hdf5.worker.worker_file import WorkerFile
from shardkeep.world import World
from tests.descriptors import few_descriptors, open_descriptors

VERSIONS = ["earliest", "v108", "v110", "v112", "latest"]
LAYOUTS = [
    {},
    {"chunks": (2, 3)},
    {"chunks": (2, 3), "maxshape": (None, 7)},
    {"chunks": (2, 3), "maxshape": (None, 7), "compression": "gzip"},
    {"chunks": (3, 2), "compression": "gzip", "shuffle": True},
    {"chunks": (1, 1), "maxshape": (None, 7), "fletcher32": True},
    {"chunks": (1, 1)},
]
TYPES = ["<f4", ">i8", "S5", "?", np.dtype([("a", "<i4"), ("b", "<f8")]), h5py.string_dtype()]


def is_known(path, *, rows=False):
    return _core.hdf5_inspect([str(path)], lock=True, rows=rows)[0] is not None


def same(one, two):
    """Return whether two inspections have equal results, arrays compared by value."""
    if dataclasses.is_dataclass(one):
        fields = [field for field in dataclasses.fields(one) if field.compare]
        return type(one) is type(two) and all(
            same(getattr(one, f.name), getattr(two, f.name)) for f in fields
        )
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[name], two[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tolist() == two.tolist()
    return bool(one == two) and type(one) is type(two)


def check_same(paths, *, rows=False):
    """Compare with what HDF5 says; return how many were inspected without it."""
    inspector = Inspector(addresses=True, rows=rows)
    expected = [inspector.inspect(path) for path in paths]
    fast = Inspector(addresses=True, rows=rows)
    slow = []
    through_hdf5 = fast.inspect
    fast.inspect = lambda path, held: slow.append(path) or through_hdf5(path, held=held)
    found = list(inspect_all(fast, paths, set()))
    assert all(map(same, found, expected)), (found, expected)
    return len(paths) - len(slow)


def write(path, version, dtype, layout, rows, *, fill=True):
    with h5py.File(path, "w", libver=version) as file:
        file.attrs["note"] = "of the file"
        group = file.create_group("g/h")
        for home, name in ((file, "x"), (group, "y")):
            dataset = home.create_dataset(name, (rows, 7), dtype, **layout)
            dataset.attrs["unit"] = np.arange(3)
            if fill:
                text = h5py.check_string_dtype(dataset.dtype)
                dataset[: rows - 1] = b"abc" if text else np.ones((rows - 1, 7), dtype)
        file["scalar"] = 2.5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_one_form_are_inspected_without_hdf5(tmp_path, version, layout):
    paths = [str(tmp_path / f"{rows}.h5") for rows in (40, 3, 300)]
    for path, rows in zip(paths, (40, 3, 300), strict=True):
        write(path, version, "<f4", layout, rows)
    assert check_same(paths) == 2


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_is_inspected_as_by_hdf5(tmp_path, version, dtype):
    paths = [str(tmp_path / name) for name in "ab"]
    write(paths[0], version, dtype, LAYOUTS[1], 9)
    write(paths[1], version, dtype, LAYOUTS[1], 30, fill=False)
    assert check_same(paths) == 1


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
def test_a_paged_chunk_index_is_inspected_as_by_hdf5(tmp_path, options):
    """Of more than 131,000 chunks an extensible array has pages, and knows which were written."""
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        with h5py.File(path, "w", libver="v110") as file:
            dataset = file.create_dataset("x", (150_000,), "u1", chunks=(1,), maxshape=(None,), **options)
            dataset[:50] = 1
            dataset[135_000:135_100] = 1
            dataset[149_000] = 1
    assert check_same(paths) == 1


def write_many(path, count, *, names="metric_{:04d}", **options):
    with h5py.File(path, "w", libver="v110", **options) as file:
        for number in range(count):
            file[names.format(number)] = np.arange(number % 3 + 1)


@pytest.mark.parametrize("count", [9, 60, 3000])
@pytest.mark.parametrize("names", ["metric_{:04d}", "{:d}" + 90 * "é"])
def test_a_group_with_its_links_in_a_heap_is_inspected_without_hdf5(tmp_path, count, names):
    """HDF5 moves the links of a group into a fractal heap from the ninth one on."""
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        write_many(path, count, names=names)
    assert check_same(paths) == 1


def test_a_damaged_heap_of_links_is_never_read_otherwise_than_by_hdf5(tmp_path):
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    write_many(good, 300)
    with open(good, "rb") as file:
        content = file.read()
    whole = _core.hdf5_inspect([good], lock=True, rows=False)[0][2]
    marks = (b"FRHP", b"FSHD", b"FHIB", b"FHDB", b"BTHD", b"BTIN", b"BTLF")
    places = [content.index(mark) + at for mark in marks for at in (*range(60), 80, 130)]
    refused = 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        with open(bad, "wb") as file:
            file.write(changed)
        found = _core.hdf5_inspect([bad], lock=True, rows=False)[0]
        refused += found is None
        if found is not None:
            assert [one[:2] for one in found[2]] == [one[:2] for one in whole], place
            Inspector().inspect(bad)
    assert refused > len(places) // 2


def test_datasets_with_other_limits_go_through_hdf5(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for limits in [(4000, 7), (None, None), (40, None)]:
        for path in paths:
            write(path, "v110", "<f4", {"chunks": (2, 3), "maxshape": limits}, 9)
        assert check_same(paths) == 0


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_random_files_are_inspected_as_by_hdf5(tmp_path_factory, seed):
    folder = tmp_path_factory.mktemp("random")
    version = random.Random(seed).choice([*VERSIONS, ("earliest", "latest")])
    paths = [str(folder / str(number)) for number in range(2)]
    for path in paths:
        _write_random(path, random.Random(seed), version)
    for rows in (False, True):
        with contextlib.suppress(ShardkeepError):
            check_same(paths, rows=rows)


def _write_random(path, draw, version):
    with h5py.File(path, "w", libver=version) as file:
        groups = [file]
        for number in range(draw.choice([0, 0, 1, 3])):
            groups.append(draw.choice(groups).create_group(f"g{number}"))
        for number in range(draw.randint(1, draw.choice([10, 10, 60]))):
            shape = tuple(draw.choice([0, 1, 5, 40]) for _ in range(draw.choice([0, 1, 1, 2, 3])))
            options = {}
            if shape and draw.random() < 0.75:
                options["chunks"] = tuple(draw.choice([1, 2, 7]) for _ in shape)
                options["maxshape"] = tuple(None if draw.random() < 0.4 else size + 9 for size in shape)
                if draw.random() < 0.5:
                    options["maxshape"] = (None, *(max(7, size) for size in shape[1:]))
                    shape = (shape[0], *options["maxshape"][1:])
                if draw.random() < 0.5:
                    options["compression"] = "gzip"
            home = draw.choice(groups)
            dataset = home.create_dataset(f"d{number}", shape, draw.choice(TYPES), **options)
            for owner in draw.sample([dataset, home, file], draw.choice([0, 0, 1])):
                owner.attrs[f"a{number}"] = draw.choice([3, "text", "", ["x", "yy"], np.bytes_(b"q")])
            if draw.random() < 0.8 and dataset.size:
                text = h5py.check_string_dtype(dataset.dtype) is not None
                dataset[...] = b"abc" if text else np.ones(shape, dataset.dtype)
            if "maxshape" in options and options["maxshape"][0] is None and draw.random() < 0.4:
                dataset.resize(draw.choice([1, 3, shape[0] + 9]), 0)
        if draw.random() < 0.1:
            file["soft"] = h5py.SoftLink("/d0")
        if draw.random() < 0.1:
            file["hard"] = draw.choice(groups)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damage_is_found_as_hdf5_finds_it(tmp_path_factory, data):
    """Newer metadata has checksums; the flips are in those."""
    folder = tmp_path_factory.mktemp("damage")
    good, bad = str(folder / "good"), str(folder / "bad")
    version = data.draw(st.sampled_from(["v110", "latest"]))
    write(good, version, "<f4", data.draw(st.sampled_from(LAYOUTS)), 9)
    with open(good, "rb") as file:
        content = bytearray(file.read())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with open(bad, "wb") as file:
        file.write(content)
    try:
        expected = Inspector(addresses=True).inspect(bad)
    except ShardkeepError as error:
        with pytest.raises(type(error)):
            list(inspect_all(Inspector(addresses=True), [good, bad], set()))
    else:
        found = list(inspect_all(Inspector(addresses=True), [good, bad], set()))[1]
        assert same(found, expected)


def _changed(path, at, value):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(value)


# In a file of version 0, which has no checksums: flags, free space, the kind of the root's entry.
@pytest.mark.parametrize("at", [16, 18, 21, 33, 72])
def test_an_old_superblock_that_hdf5_refuses_is_not_accepted(tmp_path, at):
    path = str(tmp_path / "a.h5")
    write(path, "earliest", "<f4", {}, 3)
    assert is_known(path)
    _changed(path, at, b"\x09")
    assert not is_known(path)


# Neighbours of a node, then its keys: places of names; or size, mask and first element of a chunk.
@pytest.mark.parametrize(
    ("signature", "wrong"),
    [
        (b"TREE\0", [(8, b"\x40"), (16, b"\x40"), (24, b"\xff"), (40, b"\x00")]),
        (b"TREE\1", [(8, b"\x40"), (16, b"\x40"), (32, b"\x01"), (48, b"\x01"), (72, b"\x01")]),
    ],
)
def test_an_old_tree_that_contradicts_itself_is_not_accepted(tmp_path, signature, wrong):
    path = str(tmp_path / "a.h5")
    write(path, "earliest", "<f4", LAYOUTS[1], 3)
    with open(path, "rb") as file:
        before = file.read()
    for at, value in wrong:
        _changed(path, before.index(signature) + at, value)
        assert not is_known(path)
        with open(path, "wb") as file:
            file.write(before)
    assert is_known(path)


def test_a_file_that_is_cut_off_is_an_error(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        write(path, "v110", "<f4", LAYOUTS[1], 300)
    os.truncate(paths[1], os.path.getsize(paths[1]) - 1)
    assert not is_known(paths[1])
    with pytest.raises(TruncatedFileError):
        list(inspect_all(Inspector(), paths, set()))


def test_a_file_that_another_process_writes_is_an_error(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        write(path, "v110", "<f4", {}, 3)
    with open(paths[1], "rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert not is_known(paths[1])
        with pytest.raises(LockError):
            list(inspect_all(Inspector(), paths, set()))


def test_a_file_that_this_process_writes_goes_through_hdf5(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        write(path, "earliest", "<f4", LAYOUTS[2], 3)
    with h5py.File(paths[1], "r+", locking=False) as file:
        file["x"].resize(4000, 0)
        assert not is_known(paths[1])
        _changed(paths[1], 20, b"\0")  # the flag that HDF5 sets, which older versions do not
        assert is_known(paths[1])
        with pytest.raises(LockError, match="in this process"):
            list(inspect_all(Inspector(), paths, set()))


def test_without_locks_everything_goes_through_hdf5(tmp_path, monkeypatch):
    path = str(tmp_path / "a")
    write(path, "v110", "<f4", {}, 3)
    off = dataclasses.replace(templates.locking_mode(), effect="off")
    monkeypatch.setattr(templates, "locking_mode", lambda: off)
    monkeypatch.setattr(templates, "hdf5_inspect", None)
    assert check_same([path]) == 0


def test_segments_are_inspected_as_by_hdf5(tmp_path):
    for rank in range(3):
        with WorkerFile(tmp_path / "run", World(rank, 3), durable=False) as out:
            for step in range(2):
                out.append("x", np.full((9, 4), rank + step, "f4"))
                out.append("a", np.arange(rank + 1))
                out.commit(step=step)
    paths = sorted(str(path) for path in (tmp_path / "run").rglob("*.h5"))
    assert len(paths) == 6
    for rows in (False, True):
        assert check_same(paths, rows=rows) > 0
    infos = list(inspect_all(Inspector(), paths, set()))
    assert all(list(info.datasets) == list(info.record.datasets) for info in infos)


@pytest.mark.parametrize("size", [1, 100])
def test_a_value_without_rows_belongs_to_its_form(tmp_path, size):
    paths = [str(tmp_path / name) for name in "abcd"]
    for path, value in zip(paths, (1, 2, 2, 1), strict=True):
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (), np.dtype((np.void, size)), data=np.void(bytes([value]) * size))
            file["text"] = "of variable length" if value == 1 else "another"
            del file["text"]
    assert check_same(paths) == 2
    for path in paths:
        with h5py.File(path, "a") as file:
            file["text"] = path
    assert check_same(paths) == 0  # the bytes of a text without a fixed length are elsewhere


def test_many_files_are_inspected_under_a_small_limit_of_descriptors(tmp_path):
    paths = [str(tmp_path / f"{number:03}") for number in range(100)]
    for path in paths:
        write(path, "v110", "<f4", {}, 3)
    before = open_descriptors()
    with few_descriptors(24):
        assert check_same(paths) == 99
    assert open_descriptors() == before


def test_a_merge_through_templates_equals_one_through_hdf5(tmp_path, monkeypatch):
    paths = [str(tmp_path / f"{number}.h5") for number in range(5)]
    for number, path in enumerate(paths):
        write(path, "earliest", "<f4", LAYOUTS[4], 9 * (number + 1))
    fast = merge(paths, tmp_path / "fast.h5")
    monkeypatch.setattr(templates, "_natively", lambda paths, rows: [None] * len(paths))
    slow = merge(paths, tmp_path / "slow.h5")
    assert fast.rows == slow.rows
    with h5py.File(tmp_path / "fast.h5") as one, h5py.File(tmp_path / "slow.h5") as two:
        for name in ("x", "g/h/y"):
            assert (one[name][:] == two[name][:]).all()
            assert dict(one[name].attrs).keys() == dict(two[name].attrs).keys()
