import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.merge import result

POINT = np.dtype([("a", "<i4"), ("b", "<f8")])
TYPES = [
    np.dtype("?"),
    np.dtype("<c8"),
    POINT,
    h5py.enum_dtype({"A": 1}, "<i4"),
    np.dtype(("<i4", (4,))),
    np.dtype([("n", "<u2", (3,))]),
]


def write(folder, make, **options):
    paths = [folder / name for name in ("a.h5", "b.h5")]
    for path in paths:
        with h5py.File(path, "w", **options) as file:
            make(file)
    return paths


def create(file, name, kind, shape=(3,)):
    return h5py.h5d.create(file.id, name, kind, h5py.h5s.create_simple(shape))


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("version", ["latest", ("v112", "v112"), ("v114", "v114"), "earliest"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_types_of_every_format_version_are_kept(tmp_path, mode, version, dtype):
    kind = h5py.h5t.py_create(dtype, logical=True)
    paths = write(tmp_path, lambda file: create(file, b"x", kind), libver=version)
    assert merge(paths, tmp_path / "all.h5", mode=mode).rows == {"x": 6}
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"].id.get_type().equal(kind)
    assert verify(tmp_path / "all.h5").ok


def test_old_formats_stay_readable_by_old_programs(tmp_path):
    paths = write(tmp_path, lambda file: file.create_dataset("x", data=[1, 2]), libver="latest")
    plan = merge(paths, tmp_path / "all.h5", dry_run=True)
    assert plan.versions == ("v110", "v110")


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_values_of_an_array_type_are_kept(tmp_path, mode):
    rows = np.arange(24).reshape(3, 2, 4)
    kind = h5py.h5t.array_create(h5py.h5t.STD_I64LE, (4,))

    def make(file):
        h5py.Dataset(create(file, b"x", kind, (3, 2)))[...] = rows
        h5py.Dataset(h5py.h5d.create(file.id, b"one", kind, h5py.h5s.create(h5py.h5s.SCALAR)))[...] = rows[
            0, 0
        ]

    merge(write(tmp_path, make), tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file:
        assert np.array_equal(file["x"][()], np.concatenate([rows, rows]))
        assert file["x"].shape == (6, 2) and file["one"].shape == ()
        assert np.array_equal(file["one"][()], rows[0, 0])


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_chunks_that_are_wider_than_a_row_are_kept(tmp_path, mode):
    options = {"maxshape": (None, None), "chunks": (4, 4), "compression": "gzip"}
    rows = np.arange(6.0).reshape(3, 2)
    paths = write(tmp_path, lambda file: file.create_dataset("x", data=rows, **options))
    merge(paths, tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file:
        assert np.array_equal(file["x"][()], np.concatenate([rows, rows]))


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("name", [b"\xff\xfe", b"g/\xff"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path, mode, name):
    def make(file):
        file.create_group("g")
        create(file, name, h5py.h5t.STD_I32LE)

    paths = write(tmp_path, make)
    for dry_run in (True, False):
        with pytest.raises(SchemaError, match=r"\\xff.* is not UTF-8"):
            merge(paths, tmp_path / "all.h5", mode=mode, dry_run=dry_run)


@pytest.mark.parametrize("dry_run", [True, False])
def test_an_object_that_hdf5_refuses_is_an_error_of_the_plan(tmp_path, monkeypatch, dry_run):
    def refuse(*args):
        raise ValueError("Unable to create dataset (no such thing)")

    monkeypatch.setattr(result, "create_dataset", refuse)
    paths = write(tmp_path, lambda file: file.create_dataset("x", data=[1, 2]))
    with pytest.raises(SchemaError, match=r"cannot create dataset 'x' .*no such thing"):
        merge(paths, tmp_path / "all.h5", dry_run=dry_run)
    assert not (tmp_path / "all.h5").exists()
