"""`hdf5.open` in one process: an h5py.File in every way but how it ends.

Covers `shardkeep.hdf5.locking.handles`, `shardkeep.hdf5.locking.holders`,
`shardkeep.hdf5.locking.open_errors`, `shardkeep.hdf5.locking.reading`, `shardkeep.hdf5.locking.writing`,
`shardkeep.hdf5.open.dataset`, `shardkeep.hdf5.open.file` and `shardkeep.hdf5.open.member`.
"""

from __future__ import annotations

import os
import threading

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import (
    CorruptDataError,
    ExistsError,
    FormatError,
    LockError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.hdf5 import open as hopen
from shardkeep.hdf5.locking.holders import holders_of, openers_of
from shardkeep.hdf5.locking.open_file_budget import max_open_files, open_file_budget
from tests.descriptors import open_descriptors


@pytest.fixture
def path(tmp_path):
    with hopen(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(12).reshape(4, 3)
        file["g"].attrs["kind"] = "numbers"
        file["names"] = ["a", "é"]
        file["soft"] = h5py.SoftLink("/g/x")
        file["type"] = np.dtype("i4")
        file["ref"] = np.array([file["g/x"].ref], dtype=h5py.ref_dtype)
    return tmp_path / "a.h5"


def test_reading_interface_of_h5py(path):
    with hopen(path) as file:
        assert isinstance(file, h5py.File)
        assert isinstance(file["g"], h5py.Group)
        assert isinstance(file["g/x"], h5py.Dataset)
        assert isinstance(file["type"], h5py.Datatype)
        assert sorted(file) == sorted(file.keys()) == ["g", "names", "ref", "soft", "type"]
        assert "g/x" in file
        assert file.get("nothing", 5) == 5
        assert isinstance(file.get("soft", getlink=True), h5py.SoftLink)
        assert [name for name, _ in file.items()] == list(reversed(list(reversed(file))))
        assert file["soft"][1].tolist() == [3, 4, 5]
        assert file[file["ref"][0]][3, 2] == 11
        assert file["g"]["x"] == file["g/x"] == file["soft"].file["g/x"]
        assert len({file["g/x"], file["g"]["x"]}) == 1
        assert file["g/x"].parent.name == "/g"
        assert (file["g/x"].name, file["g/x"].file.filename) == ("/g/x", str(path))
        assert (file.mode, file.filename, file.locking) == ("r", str(path), "flock, shared")
        assert dict(file["g"].attrs) == {"kind": "numbers"}
        assert dict(file.attrs) == {}
        found = []
        file.visititems(lambda name, item: found.append((name, type(item).__name__)))
        assert ("g/x", "Dataset") in found
        assert file.visit(lambda name: name if name.endswith("x") else None) == "g/x"
        np.testing.assert_array_equal(np.asarray(file["g/x"]), np.arange(12).reshape(4, 3))
        assert [row[0] for row in file["g/x"]] == [0, 3, 6, 9]
        assert "shardkeep" in repr(file)
    assert not file
    assert repr(file) == "<Closed HDF5 file>"


def test_writing_interface_of_h5py(path):
    with hopen(path, "r+") as file:
        made = file.require_group("h").create_dataset("y", (2, 2), "f4", maxshape=(None, 2), chunks=(1, 2))
        made[1] = 5
        made.resize(3, 0)
        made.attrs["a"] = [1, 2]
        file.copy("g/x", "copy")
        file.move("names", "h/names")
        del file["g"].attrs["kind"]
        file.flush()
        assert file.require_dataset("h/y", (3, 2), "f4") == made
        with file.build_virtual_dataset("v", (2,), "i8") as layout:
            layout[:] = h5py.VirtualSource(file["copy"])[0, :2]
    with h5py.File(path) as file:
        assert file["h/y"][:].tolist() == [[0, 0], [5, 5], [0, 0]]
        assert file["v"][:].tolist() == [0, 1]
        assert sorted(file["h"]) == ["names", "y"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"libver": "latest"},
        {"userblock_size": 1024},
        {"fs_strategy": "page", "fs_page_size": 4096, "page_buf_size": 8192},
        {"track_order": True, "rdcc_nbytes": 1 << 22},
    ],
)
def test_creation_with_options(tmp_path, options):
    for mode in ("x", "w"):
        with hopen(tmp_path / "a.h5", mode, **options) as file:
            for name in "zyx":
                file[name] = [1]
            assert file.userblock_size == options.get("userblock_size", 0)
    with h5py.File(tmp_path / "a.h5") as file:
        assert list(file) == (list("zyx") if "track_order" in options else list("xyz"))
        assert file.userblock_size == options.get("userblock_size", 0)
    assert os.listdir(tmp_path) == ["a.h5"]


def test_errors_and_results_of_each_mode(path, tmp_path):
    with pytest.raises(NotFoundError, match="there is no file"):
        hopen(tmp_path / "none.h5")
    with pytest.raises(NotFoundError, match="mode 'a'"):
        hopen(tmp_path / "none.h5", "r+")
    with pytest.raises(NotFoundError, match="does not exist; create it first"):
        hopen(tmp_path / "none/a.h5", "w")
    for mode in ("x", "w-"):
        with pytest.raises(ExistsError, match="choose another name"):
            hopen(path, mode)
    for mode in ("r", "r+", "w"):
        with pytest.raises(FormatError, match="is a folder"):
            hopen(tmp_path, mode)
    with hopen(tmp_path / "new.h5", "a") as file:
        file["x"] = [1]
    with hopen(tmp_path / "new.h5", "a") as file:
        assert file["x"][:].tolist() == [1]
    with hopen(tmp_path / "new.h5", "w") as file:
        assert list(file) == []
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "new.h5"]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mode": "q"}, "not 'q'"),
        ({"if_unsafe": "hope"}, "not 'hope'"),
        ({"driver": "core"}, "driver= is not accepted"),
        ({"locking": False}, "locking follows the file system"),
        ({"librever": "latest"}, "h5py.File has no such option"),
    ],
)
def test_invalid_options_are_refused(path, options, match):
    with pytest.raises(PlanError, match=match):
        hopen(path, **options)


def test_files_of_another_kind_are_refused(tmp_path, path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(FormatError, match="is not an HDF5 file: it is plain text that begins 'hello'"):
        hopen(tmp_path / "text")
    with pytest.raises(FormatError, match="is not an HDF5 file: it is plain text that begins 'hello'"):
        hopen(tmp_path / "text", "r+")
    os.truncate(path, 2000)
    with pytest.raises(TruncatedFileError, match="is cut off"):
        hopen(path)


def test_file_of_a_killed_writer_is_refused(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.flush()
        whole = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(whole)
    with pytest.raises(CorruptDataError, match="is marked as open by a writer"):
        hopen(tmp_path / "a.h5")


def test_use_after_close_is_an_error(path):
    file = hopen(path)
    dataset = file["g/x"]
    file.close()
    file.close()
    for use in (lambda: dataset[0], lambda: dataset.shape, lambda: file["g"], lambda: list(file)):
        with pytest.raises(PlanError, match="is closed: open it again"):
            use()
    assert not dataset


def test_closing_frees_descriptors(path):
    before = open_descriptors()
    count = len(open_file_budget)
    file = hopen(path)
    kept = file["g/x"], file["g"], file.attrs
    file.close()
    assert not open_descriptors() - before
    hopen(path)["g/x"][0]
    assert not open_descriptors() - before
    assert len(open_file_budget) == count
    del kept


def test_several_handles_and_plain_h5py_in_one_process(path):
    with h5py.File(path) as plain, hopen(path) as one, hopen(path) as two:
        assert plain["g/x"][0, 1] == one["g/x"][0, 1] == two["g/x"][0, 1] == 1
        one.close()
        assert plain["g/x"][0, 1] == two["g/x"][0, 1] == 1


def test_writer_and_reader_of_one_process_exclude_each_other(path):
    with hopen(path), pytest.raises((LockError, LockTimeoutError), match="this process"):
        hopen(path, "r+")
    with hopen(path, "r+") as file, pytest.raises(LockTimeoutError, match="this process"):
        hopen(path, "w")
    assert not file
    with hopen(path) as file:
        assert len(file["g/x"]) == 4


def test_budgets_of_files_and_caches(tmp_path, monkeypatch):
    files = []
    for i in range(12):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file.create_dataset("x", data=np.full(300_000, i), chunks=(10_000,))
    monkeypatch.setattr("shardkeep.hdf5.locking.open_file_budget._MOST", 5)
    start = len(open_file_budget)
    files = [hopen(tmp_path / f"{i}.h5") for i in range(12)]
    sets = [file["x"] for file in files]
    assert len(open_file_budget) == max_open_files() == 5
    for turn in range(2):
        assert [int(one[turn]) for one in sets] == list(range(12))
    assert open_file_budget.cache_bytes <= 5 * 1024 * 1024
    monkeypatch.setenv("SHARDKEEP_HDF5_CACHE_BYTES", str(2 * 1024 * 1024))
    assert [int(one[5]) for one in sets] == list(range(12))
    assert len(open_file_budget) <= 2
    assert open_file_budget.cache_bytes <= 2 * 1024 * 1024
    for file in files:
        file.close()
    assert len(open_file_budget) <= start
    monkeypatch.setenv("SHARDKEEP_HDF5_CACHE_BYTES", "many")
    with pytest.raises(PlanError, match="whole number of bytes"):
        hopen(tmp_path / "0.h5")["x"]


def test_visit_that_opens_more_files_than_the_budget(tmp_path, monkeypatch):
    for i in range(8):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            for name in "abcdefgh":
                file[name] = [i]
    monkeypatch.setattr("shardkeep.hdf5.locking.open_file_budget._MOST", 4)
    others = [hopen(tmp_path / f"{i}.h5") for i in range(1, 8)]
    with hopen(tmp_path / "0.h5") as file:
        seen = []
        file.visititems(
            lambda name, item: seen.append((name, [int(one[name][0]) for one in others], item[0]))
        )
        assert seen == [(name, list(range(1, 8)), 0) for name in "abcdefgh"]
    for one in others:
        one.close()


def test_threads_over_more_files_than_the_budget(tmp_path, monkeypatch):
    for i in range(8):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["x"] = np.full(100, i)
    monkeypatch.setattr("shardkeep.hdf5.locking.open_file_budget._MOST", 4)
    sets = [hopen(tmp_path / f"{i}.h5")["x"] for i in range(8)]
    wrong = []

    def read(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, 8, 200):
            if int(sets[i][50]) != i or sets[i].shape != (100,):
                wrong.append(i)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []
    for dataset in sets:
        dataset.file.close()


def test_writing_without_trusted_locks_is_refused(path, monkeypatch):
    monkeypatch.setattr(
        "shardkeep.hdf5.locking.writing.lock_fault_of", lambda _: "fuse.sshfs at '/x': no locks"
    )
    for mode in ("r+", "a", "w"):
        with pytest.raises(
            LockError, match=r"fuse\.sshfs.*hdf5\.WorkerFile.*collector.*SHARDKEEP_LOCKS=trust"
        ):
            hopen(path, mode)
    with hopen(path) as file:
        assert len(file["g/x"]) == 4
    monkeypatch.setenv("SHARDKEEP_LOCKS", "trust")
    with hopen(path, "r+") as file:
        assert file.locking == "flock, exclusive, but fuse.sshfs at '/x': no locks"
    monkeypatch.delenv("SHARDKEEP_LOCKS")
    with hopen(path, "r+", if_unsafe="trust") as file:
        file["more"] = [1]


def test_an_external_link(tmp_path, path):
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["there"] = h5py.ExternalLink("a.h5", "/g")
        file["nowhere"] = h5py.ExternalLink("c.h5", "/g")
    with hopen(tmp_path / "b.h5") as file:
        x = file["there/x"]
        file.suspend()
        assert x[1].tolist() == [3, 4, 5]
        with pytest.raises(KeyError):
            file["nowhere"]


def test_openers_and_holders(path):
    assert (openers_of(path), holders_of(path)) == ([], [])
    with hopen(path):
        (one,) = holders_of(path)
        assert (one.pid, one.lock, one.writes) == (os.getpid(), "shared", False)
    with hopen(path, "r+"):
        (one,) = holders_of(path)
        assert (one.pid, one.lock, one.writes) == (os.getpid(), "exclusive", True)
        assert one.since > 1e9
        assert "(this process)" in str(one)
    with open(path, "rb"):
        (one,) = openers_of(path)
        assert (one.lock, one.writes) == ("none", False)
    assert openers_of(path.parent / "none") == []


def test_swmr_reading(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file.create_dataset("x", data=np.arange(10), maxshape=(None,), chunks=(5,))
    with hopen(tmp_path / "a.h5", swmr=True) as file:
        assert file.swmr_mode
        assert file["x"][3] == 3


def test_public_names():
    assert sk.hdf5.open is hopen
    assert sk.hdf5.locking_mode().effect == "asked"


def test_numbers_of_variable_length_in_the_other_byte_order(tmp_path):
    # h5py reads them as if they were of the machine's.
    other = h5py.vlen_dtype(np.dtype("i4").newbyteorder())
    table = np.dtype([("n", "i4"), ("v", other), ("in", [("w", other)])])
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, dtype in (("x", other), ("table", table)):
            file.create_dataset(name, (3,), dtype)
        rows = np.empty(3, table)
        for i in range(3):
            numbers = np.arange(i, dtype=other.metadata["vlen"])
            file["x"][i] = numbers
            rows[i] = (i, numbers, (numbers,))
        file["table"][...] = rows
        both = np.empty(2, object)
        both[:] = [np.arange(n, dtype=other.metadata["vlen"]) for n in (3, 1)]
        file.attrs.create("v", both, dtype=other)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((3,), other)
        layout[:] = h5py.VirtualSource(tmp_path / "a.h5", "x", (3,))
        file.create_virtual_dataset("x", layout)
    expected = [[], [0], [0, 1]]
    for name in ("a.h5", "virtual.h5"):
        with hopen(tmp_path / name) as file:
            assert [one.tolist() for one in file["x"][:]] == expected
            assert [one.tolist() for one in file["x"]] == expected
            assert file["x"][2].tolist() == [0, 1]
            room = np.empty(3, object)
            file["x"].read_direct(room)
            assert [one.tolist() for one in room] == expected
    with hopen(tmp_path / "a.h5") as file:
        assert [one.tolist() for one in file.attrs["v"]] == [[0, 1, 2], [0]]
        assert [one.tolist() for one in file["table"]["v"]] == expected
        assert [one.tolist() for one in file["table"].fields("v")[:]] == expected
        assert [(n, v.tolist()) for n, v in file["table"]["n", "v"]] == list(enumerate(expected))
        n, v, inner = file["table"][2]
        assert (n, v.tolist(), inner["w"].tolist()) == (2, [0, 1], [0, 1])


def test_short_writes_of_a_new_file_are_continued(tmp_path, monkeypatch):
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: real(fd, data[:100], offset))
    with hopen(tmp_path / "a.h5", "w") as file:
        file["x"] = [1, 2]
        assert file["x"][:].tolist() == [1, 2]
