"""Virtual datasets read through their sources: what h5py gives, and errors where it gives fill values."""

from __future__ import annotations

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shardkeep as sk
from shardkeep.errors import CorruptDataError, LockTimeoutError, NotFoundError, SchemaError, ShardkeepError
from shardkeep.hdf5 import open as hopen
from shardkeep.hdf5.storage.casts import fits
from tests.descriptors import open_descriptors
from tests.waiting import PATIENCE_S


def rows_of(n: int, dtype="i4") -> np.ndarray:
    return np.arange(n * 30).reshape(n * 10, 3).astype(dtype)


def make(folder, *, sources: int = 4, dtype="i4", source_dtype=None, **options) -> np.ndarray:
    """Write sources of ten rows of three values, and ``all.h5`` that joins them as x."""
    whole = rows_of(sources, source_dtype or dtype)
    layout = h5py.VirtualLayout(whole.shape, dtype)
    for i in range(sources):
        with h5py.File(folder / f"s{i}.h5", "w") as file:
            part = whole[10 * i : 10 * i + 10]
            layout[10 * i : 10 * i + 10] = h5py.VirtualSource(file.create_dataset("x", data=part, **options))
    with h5py.File(folder / "all.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
        file["plain"] = [1, 2]
    return whole


COLOURS = h5py.enum_dtype({"red": 0, "blue": 1})
TWO = np.dtype(("i8", (2,)))


@pytest.mark.parametrize(
    ("source", "virtual", "expected"),
    [
        ("i8", "f8", False),
        ("u8", "f8", False),
        ("i4", "f4", False),
        ("i4", "f8", True),
        ("i2", "f4", True),
        ("u4", "f8", True),
        ("i8", "c16", False),
        ("i8", "i4", False),
        ("u4", "i4", False),
        ("u4", "i8", True),
        ("f8", "f4", False),
        ("f4", "f8", True),
        ("S5", "S3", False),
        ("S3", "S5", True),
        (COLOURS, h5py.enum_dtype({"red": 1, "blue": 0}), False),
        (COLOURS, h5py.enum_dtype({"red": 0}), False),
        (COLOURS, "i8", False),
        ([("a", "i8")], [("a", "f8")], False),
        ([("a", "i8", (2,))], [("a", "f8", (2,))], False),
        ([("a", "i4", (2,))], [("a", "f8", (2,))], True),
        ([("a", "i4", (2,))], [("a", "i4", (3,))], False),
        (TWO, np.dtype(("f8", (2,))), False),
        (h5py.vlen_dtype("i8"), h5py.vlen_dtype("f8"), False),
        (h5py.vlen_dtype("i8"), h5py.vlen_dtype("i8"), True),
        (h5py.string_dtype(), h5py.string_dtype("ascii"), False),
    ],
)
def test_a_type_fits_only_if_no_value_changes(source, virtual, expected) -> None:
    assert fits(np.dtype(source), np.dtype(virtual)) == expected


@pytest.mark.parametrize(("source", "virtual"), [("i8", "f8"), ("u8", "f8"), ("i8", "c16"), ("i4", "f4")])
def test_integers_are_not_rounded_into_floats(tmp_path, source, virtual):
    make(tmp_path, dtype=virtual, source_dtype=source)
    with pytest.raises(SchemaError, match="does not fit into"):
        hopen(tmp_path / "all.h5")
    assert ["does not fit into" in one for one in sk.hdf5.verify(tmp_path / "all.h5").findings] == [True]


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (4, 3)}, {"compression": "gzip"}, {"maxshape": (None, 3)}]
)
@pytest.mark.parametrize("dtype", ["i4", ">i4", "f8", "complex64", "S3", "bool"])
def test_selections_equal_those_of_h5py(tmp_path, dtype, options):
    whole = make(tmp_path, dtype=dtype, **options)
    with hopen(tmp_path / "all.h5") as file:
        x = file["x"]
        assert (x.shape, x.dtype, x.is_virtual) == (whole.shape, np.dtype(dtype), True)
        for args in (
            ...,
            5,
            -1,
            slice(3, 25),
            slice(0, 40, 7),
            (slice(None), 1),
            (slice(8, 22), [0, 2]),
            [3, 9, 30],
        ):
            np.testing.assert_array_equal(x[args], whole[args])
        np.testing.assert_array_equal(np.asarray(x), whole)
        np.testing.assert_array_equal(x[whole == whole[3, 1]], whole[whole == whole[3, 1]])
        assert [len(row) for row in x] == [3] * 40
        out = np.zeros((5, 3), dtype)
        x.read_direct(out, np.s_[8:13])
        np.testing.assert_array_equal(out, whole[8:13])


def indices(length: int):
    return st.one_of(
        st.integers(-length, length - 1),
        st.slices(length).filter(lambda one: (one.step or 1) > 0),
    )


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Boxes that leave holes, along both axes, from sources with an axis more and less."""
    folder = tmp_path_factory.mktemp("grid")
    layout = h5py.VirtualLayout((12, 9, 2), "i8")
    with h5py.File(folder / "flat.h5", "w") as file:
        file["x"] = np.arange(100, 110).reshape(5, 2)
        layout[3, 2:7] = h5py.VirtualSource(file["x"])
    with h5py.File(folder / "deep.h5", "w") as file:
        file.create_dataset("x", data=np.arange(64).reshape(4, 2, 4, 2), chunks=(2, 2, 2, 2))
        layout[6:10, 1:5] = h5py.VirtualSource(file["x"])[:, 1]
        layout[0:2, 5:9] = h5py.VirtualSource(file["x"])[1:3, 0]
    with h5py.File(folder / "all.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    with h5py.File(folder / "all.h5") as file:
        return folder / "all.h5", file["x"][:]


@given(rows=st.one_of(indices(12), st.lists(st.integers(0, 11), unique=True).map(sorted)), columns=indices(9))
def test_any_selection_of_boxes_with_holes(grid, rows, columns):
    path, whole = grid
    with hopen(path) as file:
        np.testing.assert_array_equal(file["x"][rows, columns], whole[rows, columns])


def test_fields_and_types(tmp_path):
    dtype = np.dtype([("a", "i4"), ("b", "f8")])
    make(tmp_path, sources=1, dtype="i4")
    with h5py.File(tmp_path / "c.h5", "w") as file:
        file["x"] = np.array([(1, 2.5), (3, 4.5)], dtype)
        layout = h5py.VirtualLayout((2,), dtype)
        layout[:] = h5py.VirtualSource(file["x"])
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    with hopen(tmp_path / "v.h5") as file:
        assert file["x"]["b"].tolist() == [2.5, 4.5]
        assert file["x"].fields("a")[:].tolist() == [1, 3]
        assert file["x"].fields(["b"])[1:].tolist() == [(4.5,)]
    with hopen(tmp_path / "all.h5") as file:
        assert file["x"].astype("f4")[1].dtype == np.float32


def test_text(tmp_path):
    layout = h5py.VirtualLayout((4,), h5py.string_dtype())
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["x"] = [f"é{i}", "b"]
            layout[2 * i : 2 * i + 2] = h5py.VirtualSource(file["x"])
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    with hopen(tmp_path / "v.h5") as file:
        assert file["x"].asstr()[:].tolist() == ["é0", "b", "é1", "b"]


def test_mapping_that_is_not_a_box_is_read_by_hdf5(tmp_path):
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = np.arange(20)
        layout = h5py.VirtualLayout((10,), "i8")
        layout[:] = h5py.VirtualSource(file["x"])[::2]
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    file = hopen(tmp_path / "v.h5")
    assert file["x"][2:5].tolist() == [4, 6, 8]
    os.unlink(tmp_path / "s.h5")
    with pytest.raises(NotFoundError, match=r"s\.h5.*a source of '/x' of .*v\.h5"):
        file["x"][2:5]
    file.close()


def test_wider_virtual_type_is_accepted(tmp_path):
    whole = make(tmp_path, dtype="i8", source_dtype="i2")
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)


# -- what HDF5 fills in for --------------------------------------------------------------------------------


def damage_missing(folder):
    os.unlink(folder / "s2.h5")


def damage_no_dataset(folder):
    with h5py.File(folder / "s2.h5", "a") as file:
        del file["x"]


def damage_short(folder):
    with h5py.File(folder / "s2.h5", "w") as file:
        file["x"] = rows_of(1)[:9]


def damage_type(folder):
    with h5py.File(folder / "s2.h5", "w") as file:
        file["x"] = rows_of(1, "i8")


def damage_bytes(folder):
    with open(folder / "s2.h5", "r+b") as file:
        file.write(b"no HDF5 file")


def damage_cut(folder):
    os.truncate(folder / "s2.h5", 1000)


DAMAGES = [
    (damage_missing, NotFoundError, "is missing: it was moved or removed"),
    (damage_no_dataset, SchemaError, "has no such dataset"),
    (damage_short, CorruptDataError, "has 27 values"),
    (damage_type, SchemaError, "type int64, which does not fit into int32"),
    (damage_bytes, ShardkeepError, "is not an HDF5 file"),
    (damage_cut, ShardkeepError, "s2.h5"),
]


@pytest.mark.parametrize(("damage", "kind", "match"), DAMAGES)
def test_every_source_is_checked_when_the_file_is_opened(tmp_path, damage, kind, match):
    make(tmp_path)
    damage(tmp_path)
    before = open_descriptors()
    with pytest.raises(kind, match=match) as caught:
        hopen(tmp_path / "all.h5")
    assert "s2.h5" in str(caught.value)
    assert "all.h5" in str(caught.value)
    del caught
    assert not open_descriptors() - before
    with hopen(tmp_path / "all.h5", check_sources=False) as file:
        assert file["plain"][:].tolist() == [1, 2]


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
@pytest.mark.parametrize(("damage", "kind", "match"), DAMAGES)
def test_every_source_is_checked_again_when_it_is_read(tmp_path, damage, kind, match, options):
    whole = make(tmp_path, **options)
    file = hopen(tmp_path / "all.h5")
    np.testing.assert_array_equal(file["x"][:], whole)
    os.rename(tmp_path / "s2.h5", tmp_path / "old.h5")  # open handles keep it readable
    (tmp_path / "s2.h5").write_bytes((tmp_path / "old.h5").read_bytes())
    damage(tmp_path)
    with pytest.raises(kind, match=r"s2\.h5"):
        file["x"][:]
    np.testing.assert_array_equal(file["x"][:20], whole[:20])
    file.close()


def test_source_replaced_by_another_valid_file(tmp_path):
    make(tmp_path)
    with hopen(tmp_path / "all.h5") as file:
        assert file["x"][20, 0] == 60
        with h5py.File(tmp_path / "new.h5", "w") as new:
            new.create_dataset("x", data=-rows_of(1), chunks=(5, 3))
        os.rename(tmp_path / "new.h5", tmp_path / "s2.h5")
        assert file["x"][21, 0] == -3


def test_source_locked_by_a_writer_is_an_error(tmp_path):
    make(tmp_path)
    body = (
        f"import h5py, sys; f = h5py.File({str(tmp_path / 's1.h5')!r}, 'r+'); print(1, flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"1\n"
    try:
        with pytest.raises(LockTimeoutError, match=f"pid {child.pid}") as caught:
            hopen(tmp_path / "all.h5")
        assert "all.h5" in str(caught.value)
        assert caught.value.holder["pid"] == child.pid
    finally:
        child.communicate()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_source_is_an_error(tmp_path):
    make(tmp_path)
    os.chmod(tmp_path / "s2.h5", 0)
    with pytest.raises(CorruptDataError, match=r"s2\.h5.*EACCES"):
        hopen(tmp_path / "all.h5")


def test_unreadable_source_is_an_error_for_another_user(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    make(tmp_path)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o011 == 0:
            os.chmod(folder, folder.stat().st_mode | 0o055)
    os.chmod(tmp_path / "s2.h5", 0)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setuid(65534)
            hopen(tmp_path / "all.h5")
        except CorruptDataError as error:
            code = 0 if "EACCES" in str(error) and "s2.h5" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_enums_must_agree(tmp_path):
    ours, theirs = (h5py.enum_dtype({"a": 0, name: 1}, "i1") for name in "bc")
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file.create_dataset("x", (2,), theirs)
        layout = h5py.VirtualLayout((2,), ours)
        layout[:] = h5py.VirtualSource(file["x"])
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    with pytest.raises(SchemaError, match="does not fit"):
        hopen(tmp_path / "v.h5")


def test_unlimited_number_of_sources_is_refused(tmp_path):
    space = h5py.h5s.create_simple((2, 2), (h5py.h5s.UNLIMITED, 2))
    space.select_hyperslab((0, 0), (h5py.h5s.UNLIMITED, 1), (1, 1), (1, 2))
    layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    layout.set_virtual(space, b"s%b.h5", b"x", h5py.h5s.create_simple((1, 2)))
    with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, layout)
    with pytest.raises(SchemaError, match="unlimited number of sources"):
        hopen(tmp_path / "v.h5")


def test_three_hundred_sources_under_a_limit_of_128(tmp_path):
    whole = make(tmp_path, sources=300, chunks=(5, 3))
    np.save(tmp_path / "whole.npy", whole)
    body = """if True:
        import os, h5py, numpy as np, shardkeep as sk
        whole = np.load("whole.npy")
        with h5py.File("all.h5") as file:
            lost = (file["x"][:] != whole).any(axis=1).sum()   # no descriptor is left: HDF5 fills in
        with sk.hdf5.open("all.h5") as file:
            ours = (file["x"][:] != whole).sum()
            ours += (file["x"][::7, 1] != whole[::7, 1]).sum()
        print(lost > 0, ours, len(os.listdir("/proc/self/fd")) < 10)
    """
    command = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh", sys.executable, "-c", body]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == "True 0 True\n", done.stderr


def test_a_virtual_dataset_of_virtual_datasets(tmp_path):
    whole = make(tmp_path)
    with h5py.File(tmp_path / "top.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((40, 3), "i4")
        layout[:] = h5py.VirtualSource("all.h5", "x", (40, 3))
        file.create_virtual_dataset("x", layout)
    with hopen(tmp_path / "top.h5") as file:
        np.testing.assert_array_equal(file["x"][5:35], whole[5:35])
    os.unlink(tmp_path / "s0.h5")
    with pytest.raises(NotFoundError, match=r"s0\.h5"):
        hopen(tmp_path / "top.h5")


def test_a_merge_of_a_run(tmp_path):
    for rank in range(3):
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(rank=rank, size=3)) as out:
            out.append("x", np.full((4, 2), rank))
            out.commit(step=1)
    sk.hdf5.merge(tmp_path / "run", tmp_path / "all.h5", mode="virtual")
    os.rename(tmp_path / "run", tmp_path / "moved")
    with pytest.raises(NotFoundError, match="rank-00000"):
        hopen(tmp_path / "all.h5")
    os.rename(tmp_path / "moved", tmp_path / "run")
    with hopen(tmp_path / "all.h5") as file:
        assert file["x"][:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_sources_in_the_same_file_while_it_is_written(tmp_path):
    with hopen(tmp_path / "a.h5", "w", libver="latest") as file:
        file["x"] = np.arange(6)
        layout = h5py.VirtualLayout((3,), "i8")
        layout[:] = h5py.VirtualSource(".", "x", (6,))[3:]
        v = file.create_virtual_dataset("v", layout)
        assert v[:].tolist() == [3, 4, 5]
        with pytest.raises(ShardkeepError, match="is virtual: write to its sources"):
            v[0] = 1


def test_a_source_of_the_current_folder(tmp_path, monkeypatch):
    # HDF5 looks there too. For a merge that may be the run of the same name of another experiment.
    for name, value in (("one", 1), ("two", 2)):
        with sk.hdf5.WorkerFile(tmp_path / name / "run", sk.World(rank=0, size=1)) as out:
            out.append("x", [value])
            out.commit(step=1)
        sk.hdf5.merge(tmp_path / name / "run", tmp_path / name / "all.h5", mode="virtual")
    os.rename(tmp_path / "two" / "run", tmp_path / "gone")
    monkeypatch.chdir(tmp_path / "one")
    with pytest.raises(NotFoundError, match=r"two/run/rank-00000"):
        hopen(tmp_path / "two" / "all.h5")
    assert "there is no file" in sk.hdf5.verify(tmp_path / "two" / "all.h5").findings[0]
    (tmp_path / "made").mkdir()
    whole = make(tmp_path / "made")
    os.rename(tmp_path / "made" / "all.h5", tmp_path / "all.h5")
    monkeypatch.chdir(tmp_path / "made")
    with hopen(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)
    assert sk.hdf5.verify(tmp_path / "all.h5").ok


@pytest.mark.parametrize("userblock", [0, 512])
@pytest.mark.parametrize("written", [False, True])
def test_a_source_whose_rows_were_never_written(tmp_path, userblock, written):
    # HDF5 gives the fill value that the source's own writer asked for, and so do we.
    with h5py.File(tmp_path / "s.h5", "w", userblock_size=userblock) as file:
        source = file.create_dataset("x", (4,), "i4", fillvalue=9)
        if written:
            source[:] = 9
        layout = h5py.VirtualLayout((4,), "i4")
        layout[:] = h5py.VirtualSource(source)
    with h5py.File(tmp_path / "all.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    with hopen(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [9, 9, 9, 9]
