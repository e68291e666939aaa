import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.storage.casts import (
    fits,
    fits_as_python_numbers,
    keeps_whole_numbers,
    promoted,
    rounded_whole_number,
)
from shardkeep.hdf5.storage.dtypes import same_dtype

UTF8, ASCII = h5py.string_dtype("utf-8", 4), h5py.string_dtype("ascii", 2)


def _enum(base="i1", **members):
    return h5py.enum_dtype(members, basetype=base)


CASES = [
    ("i4", "i8", "i8"),
    ("u4", "i4", "i8"),
    ("u8", "i8", None),
    (">i4", "<i4", "<i4"),
    (">f8", "<f8", "<f8"),
    (">i2", "<i4", "<i4"),
    ("f4", "f8", "f8"),
    ("f2", "f4", "f4"),
    ("i2", "f4", "f4"),
    ("i2", "f2", "f4"),
    ("i4", "f4", "f8"),
    ("i8", "f8", None),
    ("u4", "f8", "f8"),
    ("c8", "c16", "c16"),
    ("f8", "c8", "c16"),
    ("?", "i1", None),
    ("S2", "S5", "S5"),
    (ASCII, UTF8, UTF8),
    (h5py.string_dtype("ascii"), h5py.string_dtype("utf-8"), h5py.string_dtype("utf-8")),
    ("S2", h5py.string_dtype(), None),
    ("S2", "i4", None),
    (_enum(A=0, B=1), _enum("i2", A=0, C=5), _enum("i2", A=0, B=1, C=5)),
    (_enum(A=0, B=1), _enum(A=1), None),
    (_enum(A=0), _enum(B=0), None),
    (_enum(A=0), "i1", None),
    ([("a", "i4"), ("b", "f4")], [("a", "i8"), ("b", "f4")], [("a", "i8"), ("b", "f4")]),
    ([("a", "i4")], [("b", "i4")], None),
    ([("a", "i4", (3,))], [("a", "i8", (3,))], [("a", "i8", (3,))]),
    ([("a", "i4", (3,))], [("a", "i8", (2,))], None),
    ("V4", "V8", None),
]


@pytest.mark.parametrize(("one", "two", "both"), CASES, ids=str)
def test_common_dtype_of_two(one, two, both):
    for pair in ([one, two], [two, one]):
        found = promoted([np.dtype(value) for value in pair])
        if both is None:
            assert found is None
        else:
            assert found is not None and same_dtype(found, np.dtype(both)), found


NUMBERS = st.sampled_from(
    [f"{o}{k}" for o in "<>" for k in ("i1", "i2", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8")]
)


@given(st.lists(NUMBERS, min_size=2, max_size=4))
def test_common_dtype_keeps_every_value(names):
    dtypes = [np.dtype(name) for name in names]
    wide = promoted(dtypes)
    if wide is None:
        return
    for dtype in dtypes:
        info = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        values = np.array([info.min, info.max, 0, 1], dtype)
        if dtype.kind in "iu":
            values = np.append(values, np.array([info.max - 1], dtype))
        assert values.astype(wide).astype(object).tolist() == values.astype(object).tolist()


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize(("one", "two", "both"), CASES, ids=str)
def test_merged_by_promotion(tmp_path, one, two, both, mode):
    dtypes = [np.dtype(one), np.dtype(two)]
    if any(dtype.hasobject for dtype in dtypes):
        pytest.skip("text is tried below")
    files = []
    for i, dtype in enumerate(dtypes):
        value = np.arange(20 * dtype.itemsize, dtype="u1") % 2 if dtype.kind == "V" else np.arange(20) % 2
        rows = (
            value.view(dtype)
            if dtype.kind == "V" and len(value) == 20 * dtype.itemsize
            else value.astype(dtype)
        )
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            file.create_dataset("x", data=rows, dtype=dtype, chunks=(5,), compression="gzip")
    with pytest.raises(SchemaError, match="convert one of them"):
        merge(files, tmp_path / "all.h5", mode=mode)
    kept = both is not None and (mode == "copy" or all(fits(one, np.dtype(both)) for one in dtypes))
    if not kept:
        with pytest.raises(SchemaError):
            merge(files, tmp_path / "all.h5", mode=mode, on_mismatch="promote")
        return
    merge(files, tmp_path / "all.h5", mode=mode, on_mismatch="promote")
    with h5py.File(tmp_path / "all.h5") as file:
        result, dtype = file["x"][:], file["x"].dtype
    assert same_dtype(dtype, np.dtype(both))
    expected = []
    for path in files:
        with h5py.File(path) as file:
            expected += file["x"][:].tolist()
    assert str(result.tolist()) == str(np.array(expected, dtype).tolist())
    assert verify(tmp_path / "all.h5").ok


def test_enum_mismatch_shows_members(tmp_path):
    files = [tmp_path / "0.h5", tmp_path / "1.h5"]
    for path, members in zip(files, ({"A": 0}, {"A": 0, "B": 1}), strict=True):
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (2,), _enum(**members))
    with pytest.raises(SchemaError, match=r"\(to enum of int8 \{'A': 0, 'B': 1\}\)"):
        merge(files, tmp_path / "all.h5")
    with pytest.raises(SchemaError, match=r"has enum of int8 \{'A': 0\} in .* does not read as enum of int8"):
        merge(files, tmp_path / "all.h5", mode="virtual", on_mismatch="promote")


def test_schema_error_has_a_table_of_differences(tmp_path):
    for i, dtype in enumerate(["i4", "i4", "i8", "f4"]):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["x"] = np.zeros(2, dtype)
            if i:
                file["y"] = [1]
            if i != 2:
                file["x"].attrs["unit"] = "mm"
    files = [tmp_path / f"{i}.h5" for i in range(4)]
    with pytest.raises(SchemaError) as caught:
        merge(files, tmp_path / "all.h5")
    assert "\n" not in str(caught.value) and "more differences" in str(caught.value)
    rows = {
        (row["name"], row["has"]): (row["files"], [p[-4:] for p in row["first"]])
        for row in caught.value.table
    }
    assert rows == {
        ("y", "the dataset"): (3, ["1.h5", "2.h5", "3.h5"]),
        ("y", "nothing"): (1, ["0.h5"]),
        ("x", "int32 rows of shape ()"): (2, ["0.h5", "1.h5"]),
        ("x", "int64 rows of shape ()"): (1, ["2.h5"]),
        ("x", "float32 rows of shape ()"): (1, ["3.h5"]),
        ("x@unit", "the attribute"): (3, ["0.h5", "1.h5", "3.h5"]),
        ("x@unit", "nothing"): (1, ["2.h5"]),
    }


def test_attribute_missing_in_some_files(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file["g/x"] = [1]
            file.attrs["title"] = "run"
            file["g"].attrs["kind"] = "g"
            if i:
                file.attrs["only"] = 1
    files = [tmp_path / "0.h5", tmp_path / "1.h5"]
    with pytest.raises(SchemaError, match=r"attribute 'only' of '/' is in .*1\.h5', but not in .*0\.h5'"):
        merge(files, tmp_path / "all.h5")
    report = merge(files, tmp_path / "all.h5", on_mismatch="promote")
    assert report.dropped_attributes == {"/": ("only",)}
    with h5py.File(tmp_path / "all.h5") as file:
        assert dict(file.attrs) == {"title": "run"}
        assert dict(file["g"].attrs) == {"kind": "g"}


@given(st.lists(st.integers(-(1 << 63), (1 << 64) - 1), min_size=1, max_size=5), st.sampled_from("fdeFDg"))
def test_integers_as_floats(values, kind):
    try:
        array = np.array(values, "i8" if min(values) < 0 else "u8")
    except OverflowError:  # no type holds these
        return
    dtype = np.dtype(kind)
    with np.errstate(over="ignore"):
        floats = array.astype(dtype).real
    exact = all(np.isfinite(one) and int(one) == value for one, value in zip(floats, values, strict=True))
    assert keeps_whole_numbers(array, dtype) == exact
    assert fits_as_python_numbers(array, dtype) == exact


@pytest.mark.parametrize(
    ("values", "dtype", "is_kept"),
    [
        ([0.1], "f4", True),
        ([1e39], "f4", False),
        ([float("inf"), float("nan")], "f2", True),
        ([1e39j], "c8", False),
        ([1, 255], "u1", True),
        ([-1], "u1", False),
        ([0.5], "i4", False),
        ([True], "i4", False),
    ],
)
def test_fit_of_python_numbers(values, dtype, is_kept):
    assert fits_as_python_numbers(np.array(values), np.dtype(dtype)) == is_kept


PYTHON_NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([(1 << 53) + 1, (1 << 24) + 1, 2049, True, 1 << 63]),
    st.floats(),
    st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
    st.integers(0, (1 << 64) - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
)


@given(st.lists(PYTHON_NUMBERS, min_size=1, max_size=6), st.sampled_from("fdeFDg"), st.booleans())
def test_integers_in_a_list_with_floats(values, kind, nested):
    array = np.asarray(values)
    dtype = np.dtype(kind)
    with np.errstate(over="ignore"):
        kept = array.astype(dtype).real.tolist() if array.dtype.kind == "f" else []
    rounded = [
        whole
        for one, value in zip(values, kept, strict=False)
        if isinstance(one, int | np.integer) and (whole := int(one)) != value
    ]
    if nested:
        values, array = [[one] for one in values], array[:, None]
    assert rounded_whole_number(values, array, dtype) == (rounded[0] if rounded else None)
