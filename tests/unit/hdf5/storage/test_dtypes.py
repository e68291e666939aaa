import warnings

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import merge
from shardkeep.hdf5.storage.dtypes import obstacle_to_values

POINT = np.dtype([("a", "<i4"), ("b", "<f8")])
TEXT = h5py.string_dtype()


def type_of(dtype):
    return h5py.h5t.py_create(np.dtype(dtype), logical=True)


def tagged():
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 4)
    kind.set_tag(b"by a program")
    return kind


NOT_COPIED = {
    "opaque": tagged(),
    "variable opaque": h5py.h5t.vlen_create(tagged()),
    "variable text": type_of(h5py.vlen_dtype(TEXT)),
    "variable variable": type_of(h5py.vlen_dtype(h5py.vlen_dtype("i4"))),
    "variable compound of text": type_of(h5py.vlen_dtype(np.dtype([("t", TEXT)]))),
    "field": type_of(np.dtype([("v", h5py.vlen_dtype(TEXT)), ("n", "i4")])),
    "variable array": h5py.h5t.vlen_create(h5py.h5t.array_create(h5py.h5t.STD_I32LE, (2,))),
}


@pytest.mark.parametrize("kind", NOT_COPIED.values(), ids=NOT_COPIED)
def test_types_that_h5py_cannot_copy_are_named(tmp_path, kind):
    """Of a dataset that is an error, since rows would be lost; an attribute is left out."""
    assert obstacle_to_values(kind) is not None
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))
    with h5py.File(tmp_path / "attribute.h5", "w") as file:
        file["x"] = [1, 2]
        h5py.h5a.create(file["x"].id, b"a", kind, h5py.h5s.create_simple((2,)))
    with pytest.raises(SchemaError, match=r"'x' of .*rows\.h5' has .* h5py cannot"):
        merge([tmp_path / "rows.h5"], tmp_path / "all.h5", dry_run=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        report = merge([tmp_path / "attribute.h5"], tmp_path / "all.h5")
    assert "h5py cannot" in report.left_out["x@a"]


@pytest.mark.parametrize(
    "dtype",
    [
        "<i4",
        "?",
        "S3",
        "V3",
        POINT,
        TEXT,
        h5py.vlen_dtype("<i4"),
        h5py.vlen_dtype(POINT),
        np.dtype((TEXT, (2,))),
    ],
    ids=str,
)
def test_types_that_h5py_copies(dtype):
    assert obstacle_to_values(type_of(dtype)) is None
    assert obstacle_to_values(type_of([("f", dtype), ("n", "i4")])) is None


def test_field_name_that_is_not_utf8_is_refused(tmp_path):
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 4)
    kind.insert(b"\xff", 0, h5py.h5t.STD_I32LE)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))
    with pytest.raises(SchemaError, match=r"'x' of .* has a type that cannot be read"):
        merge([tmp_path / "a.h5"], tmp_path / "all.h5", dry_run=True)
