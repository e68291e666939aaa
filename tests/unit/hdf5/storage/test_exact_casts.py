import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.hdf5.storage.exact_casts import (
    fits_as_python_numbers,
    keeps_whole_numbers,
    rounded_whole_number,
)


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
    ("values", "dtype", "fits"),
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
def test_python_numbers(values, dtype, fits):
    assert fits_as_python_numbers(np.array(values), np.dtype(dtype)) == fits


NUMBERS = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.sampled_from([(1 << 53) + 1, (1 << 24) + 1, 2049, True, 1 << 63]),
    st.floats(),
    st.integers(-(1 << 63), (1 << 63) - 1).map(np.int64),
    st.integers(0, (1 << 64) - 1).map(np.uint64),
    st.floats(width=32).map(np.float32),
)


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.sampled_from("fdeFDg"), st.booleans())
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
