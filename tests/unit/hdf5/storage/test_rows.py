from decimal import Decimal
from fractions import Fraction

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.dtypes import describe, is_text
from shardkeep.hdf5.storage.rows import as_first_rows, as_more_rows
from shardkeep.tfrecord import Ragged

F4 = np.dtype("f4")
COLOURS = h5py.enum_dtype({"RED": 1, "BLUE": 2}, basetype="u1")


@pytest.mark.parametrize(
    "rows",
    [
        [1, 2],
        [[1.5], [2.5]],
        [True],
        [b"ab", b"c"],
        [1 + 2j],
        range(3),
        np.zeros((2, 0)),
        np.zeros(2, ">i2"),
        np.zeros(3, [("a", "i4"), ("b", "f8", (2,)), ("s", "S3")]),
        np.zeros(2, COLOURS),
        np.array([b"ab"], "V2"),
    ],
)
def test_first_rows_keep_dtype_and_shape(rows):
    array = as_first_rows("x", rows)
    assert array.dtype == np.asarray(rows).dtype
    assert array.shape == np.asarray(rows).shape


@pytest.mark.parametrize(
    "rows", [["a", "äöü"], [["a"], ["b"]], np.array(["x", "yz"]), np.array(["x", "y"], dtype=object)]
)
def test_text_is_encoded_as_utf8(rows):
    array = as_first_rows("x", rows)
    assert is_text(array.dtype)
    assert array.ravel()[0] == np.asarray(rows).ravel()[0].encode()


class _NoArray:
    """As a tensor that wants its gradient."""

    def __array__(self, *arguments, **options):
        raise RuntimeError("call detach() first")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (1 << 64, "18446744073709551616 has more than 64 bits"),
        (None, "hold NoneType"),
        ([[1], [2, 3]], "one shape for all, or declare"),
        ([1 << 64], "18446744073709551616 has more than 64 bits: append it as a float"),
        ([-1 << 64], "more than 64 bits"),
        ([1 << 20_000], "an integer of 20001 bits has more than 64 bits"),
        ([2**53 + 1, 0.25], "9007199254740993 would be rounded to float64"),
        ([[1, 2], [0.5, -(2**53) - 1]], "-9007199254740993 would be rounded"),
        ([np.array([2**53 + 1]), np.array([0.25])], "would be rounded"),
        ([np.int64(2**53 + 1), np.float32(0.25)], "would be rounded"),
        ([2**63 + 1, -1], "no integer type holds all"),
        ([2**53 + 1, 1j], "would be rounded to complex128"),
        ([1 << 70, 0.25], "more than 64 bits"),
        ([Fraction(1, 3), 0.25], "hold Fraction"),
        ([0.25, Decimal("0.1")], "hold float"),
        (_NoArray(), r"not form an array \(call detach\(\) first\): pass a NumPy array"),
        ([1, "a"], "hold int"),
        ([None], "hold NoneType"),
        ([object()], "hold object"),
        ([{"a": 1}], "hold dict"),
        (np.array([[b"a", b"b"]], dtype=object), "byte strings are kept as rows of one dimension"),
        (Ragged(np.array([b"a", b"b"], object), np.array([0, 2])), "append rows.values and rows.lengths"),
        (np.zeros(2, "M8[s]"), "view"),
        (np.zeros(2, "m8[ms]"), "view"),
        (np.zeros(2, [("a", "M8[s]")]), "cannot keep"),
        (np.zeros(2, [("a", "O")]), "cannot keep"),
        (["a\0b"], "NUL"),
        (["\ud800"], "not Unicode"),
        ([b"a\0"], "NUL"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
    ],
)
def test_rows_that_hdf5_cannot_keep_are_refused(rows, said):
    with pytest.raises(SchemaError, match=said) as caught:
        as_first_rows("x", rows)
    assert "\n" not in str(caught.value)
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([2**53 + 1, 0.25], "f8"),
        ([2**24 + 1, 0.25], "f4"),
        ([2049, 0.25], "f2"),
        ([70_000, 0.25], "f2"),
        ([2**24 + 1, 1j], "c8"),
        ([[2**24 + 1, 0.25]], h5py.vlen_dtype("f4")),
    ],
)
def test_integers_among_floats_are_not_rounded(rows, dtype):
    with pytest.raises(SchemaError, match=r"'x'.* would be rounded to"):
        as_more_rows("x", rows, np.dtype(dtype), ())


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        ([2**53, 0.25], "f8"),
        ([2**24, 0.1], "f4"),
        ([2**24 + 1.0], "f4"),
        ([True, 0.5], "f2"),
        ([2**63, -1], "f8"),
    ],
)
def test_exact_integers_among_floats_are_accepted(rows, dtype):
    kept = as_more_rows("x", rows, np.dtype(dtype), ())
    assert kept.tolist() == np.asarray(rows).astype(dtype).tolist()


def test_masked_array_without_masked_values_is_accepted():
    assert as_first_rows("x", np.ma.masked_array([1, 2])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (np.zeros(2, "f2"), "f4"),
        (np.zeros(2, "u1"), "i2"),
        (np.zeros(2, ">f4"), "<f4"),
        (np.zeros(2, "i4"), "f8"),
        (np.zeros(2, bool), "i1"),
        (np.zeros(2, "S2"), "S4"),
        ([0.1, 0.2], "f4"),
        ([1, -(1 << 24)], "f4"),
        ([1 << 63], "c8"),
        (np.array([-(1 << 63), 1 << 53]), "f8"),
        ([1, 255], "u1"),
        ([], "i4"),
        (np.zeros(0, "f8"), "i4"),
        ([True], "?"),
        ([1, 2, 2], COLOURS),
        ([], COLOURS),
        (np.array([2], COLOURS), COLOURS),
    ],
)
def test_lossless_casts_are_accepted(rows, dtype):
    dtype = np.dtype(dtype)
    array = as_more_rows("x", rows, dtype, ())
    assert array.dtype == dtype
    assert array.tolist() == np.asarray(rows).astype(dtype).tolist()


@pytest.mark.parametrize(
    ("rows", "dtype"),
    [
        (np.zeros(2, "f8"), "f4"),
        (np.zeros(2, "i4"), "f4"),
        (np.zeros(2, "i2"), "u1"),
        ([1, 256], "u1"),
        ([-1], "u1"),
        ([0.5], "i4"),
        ([(1 << 24) + 1], "f4"),
        ([-(1 << 63), (1 << 63) - 1], "f8"),
        ([(1 << 64) - 1], "c16"),
        (np.array([(1 << 53) + 1]), "f8"),
        (np.array([0, (1 << 64) - 1], "u8"), "c16"),
        ([1], "?"),
        (np.zeros(2, "c8"), "f8"),
        (np.zeros(2, "S5"), "S4"),
        (["a"], "i4"),
        ([1], h5py.string_dtype()),
        ([b"a"], h5py.string_dtype()),
        ([3], COLOURS),
        (np.zeros(1, h5py.enum_dtype({"RED": 1, "BLUE": 3}, basetype="u1")), COLOURS),
        ([1.0], COLOURS),
        (np.zeros(1, [("a", "i4"), ("b", "i4")]), np.dtype([("a", "i4"), ("c", "i4")])),
    ],
)
def test_lossy_casts_are_refused_with_both_types(rows, dtype):
    dtype = np.dtype(dtype)
    with pytest.raises(SchemaError) as caught:
        as_more_rows("x", rows, dtype, ())
    assert describe(dtype, ()) in str(caught.value)
    assert "convert" in str(caught.value)


def test_row_shapes_must_be_equal():
    with pytest.raises(SchemaError, match=r"shape \(3,\).*shape \(3, 1\)"):
        as_more_rows("x", np.zeros((2, 3, 1), "f4"), F4, (3,))
    with pytest.raises(SchemaError):
        as_more_rows("x", np.zeros(3, "f4"), F4, (3,))


@pytest.mark.parametrize(
    "value", [1.5, 3, True, "text", b"x", 2j, np.float32(1), np.array(2), np.bool_(True)]
)
def test_a_scalar_is_one_row(value):
    first = as_first_rows("x", value)
    assert first.shape == (1,)
    more = as_more_rows("x", value, first.dtype, ())
    assert (more == as_more_rows("x", [value], first.dtype, ())).all()
    with pytest.raises(SchemaError, match="rows of shape"):
        as_more_rows("x", value, first.dtype, (2,))


@pytest.mark.parametrize("rows", [5, [5], [np.int64(5)], [[1], 5]])
def test_a_scalar_is_not_a_row_of_variable_length(rows):
    with pytest.raises(SchemaError, match=r"is a sequence, not a single value; append \[\[value\]\]"):
        as_more_rows("x", rows, h5py.vlen_dtype("i4"), ())


BYTES = np.array([b"a", b"", b"\0\xff\0"], object)


def test_byte_strings_of_a_loader_are_kept_as_they_are():
    first = as_first_rows("x", BYTES)
    assert h5py.check_vlen_dtype(first.dtype) == np.uint8
    assert [row.tobytes() for row in first] == BYTES.tolist()
    more = as_more_rows("x", BYTES[:2], first.dtype, ())
    assert [row.tobytes() for row in more] == [b"a", b""]
    assert [row.tobytes() for row in as_more_rows("x", [b"abc"], first.dtype, ())] == [b"abc"]


def test_byte_strings_of_a_loader_fit_declared_text_and_fixed_bytes():
    text = as_more_rows("x", np.array(["ä".encode()], object), h5py.string_dtype(), ())
    assert text.tolist() == ["ä".encode()]
    with pytest.raises(SchemaError, match="is not UTF-8: use another name"):
        as_more_rows("x", BYTES, h5py.string_dtype(), ())
    fixed = as_more_rows("x", np.array([b"ab"], object), np.dtype("S4"), ())
    assert fixed.tolist() == [b"ab"]
    with pytest.raises(SchemaError, match="lose trailing NULs"):
        as_more_rows("x", np.array([b"a\0"], object), np.dtype("S4"), ())


def test_ragged_rows_define_and_continue_a_dataset():
    ragged = Ragged(np.array([1.5, 2.5, 3.5], np.float32), np.array([0, 0, 2, 3]))
    first = as_first_rows("x", ragged)
    assert h5py.check_vlen_dtype(first.dtype) == np.float32
    assert [row.tolist() for row in first] == [[], [1.5, 2.5], [3.5]]
    wider = as_more_rows("x", ragged, h5py.vlen_dtype("f8"), ())
    assert [row.tolist() for row in wider] == [[], [1.5, 2.5], [3.5]]
    with pytest.raises(SchemaError, match="rows of different lengths: use another name"):
        as_more_rows("x", ragged, F4, ())
    with pytest.raises(SchemaError, match="convert them"):
        as_more_rows("x", ragged, h5py.vlen_dtype("i4"), ())


def test_raw_records_of_a_loader_are_bytes_of_variable_length():
    raw = Ragged(np.frombuffer(b"abcde", np.uint8), np.array([0, 3, 5]))
    assert [row.tobytes() for row in as_first_rows("x", raw)] == [b"abc", b"de"]
