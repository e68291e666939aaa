from decimal import Decimal
from fractions import Fraction

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.rows import (
    as_first_rows,
    as_more_rows,
    check_name,
    chunk_rows_of,
    content_crc,
    describe,
    is_text,
)

F4 = np.dtype("f4")
COLOURS = h5py.enum_dtype({"RED": 1, "BLUE": 2}, basetype="u1")


@pytest.mark.parametrize("name", ["a", "a/b/c", "ä ö", "a.b", "...", "%b"])
def test_good_names(name):
    assert check_name(name, {"other": 1}) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "a/..",
        "a\0b",
        3,
        b"a",
        "_commit",
        "_provenance/x",
        "_receipts",
        None,
    ],
)
def test_bad_names(name):
    with pytest.raises(SchemaError):
        check_name(name, {})


def test_a_dataset_cannot_be_a_group():
    with pytest.raises(SchemaError, match="at once"):
        check_name("a", {"a/b": 1})
    with pytest.raises(SchemaError, match="at once"):
        check_name("a/b/c", {"a/b": 1})


def test_chunks_are_half_a_mebibyte_at_most():
    assert chunk_rows_of(F4, (128,)) == 1024
    assert chunk_rows_of(np.dtype("u1"), ()) == 512 * 1024
    assert chunk_rows_of(F4, (1_000_000,)) == 1
    assert chunk_rows_of(F4, (0,)) > 1e9
    assert chunk_rows_of(h5py.string_dtype(), ()) == 4096
    assert chunk_rows_of(h5py.string_dtype(), (10_000,)) == 1


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
def test_first_rows_are_kept_as_they_are(rows):
    array = as_first_rows("x", rows)
    assert array.dtype == np.asarray(rows).dtype
    assert array.shape == np.asarray(rows).shape


@pytest.mark.parametrize(
    "rows", [["a", "äöü"], [["a"], ["b"]], np.array(["x", "yz"]), np.array(["x", "y"], dtype=object)]
)
def test_text_becomes_utf8(rows):
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
        (1.5, "no row axis"),
        ("text", "no row axis"),
        (np.float32(1), "no row axis"),
        ([[1], [2, 3]], "one shape, or declare rows of any length by create"),
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
        (_NoArray(), r"no array \(call detach\(\) first\): give a NumPy array"),
        ([1, "a"], "hold int"),
        ([None], "hold NoneType"),
        ([object()], "hold object"),
        ([{"a": 1}], "hold dict"),
        (np.array([b"a"], dtype=object), "hold bytes"),
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
def test_rows_that_cannot_be_kept(rows, said):
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
def test_integers_among_floats_are_not_rounded_into_rows_that_exist(rows, dtype):
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
def test_what_a_float_holds_may_be_among_floats(rows, dtype):
    kept = as_more_rows("x", rows, np.dtype(dtype), ())
    assert kept.tolist() == np.asarray(rows).astype(dtype).tolist()


def test_a_masked_array_without_a_mask_is_an_array():
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
def test_rows_that_cast_without_loss(rows, dtype):
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
def test_rows_that_would_lose_something_show_both_sides(rows, dtype):
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


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.sampled_from(["f4", ">i8", "S3", "?", "c8"]))
def test_the_hash_does_not_depend_on_the_pieces(cuts, dtype):
    rows = np.arange(51 * 3).astype("u1").view(bool if dtype == "?" else "u1").astype(dtype).reshape(51, 3)
    crc, start = 0, 0
    for cut in sorted(cuts):
        crc = content_crc(rows[start:cut], crc)
        start = cut
    assert content_crc(rows[start:], crc) == content_crc(rows)


def test_the_hash_sees_order_lengths_and_every_bit():
    text = as_first_rows("x", ["ab", "c"])
    assert content_crc(text) != content_crc(as_first_rows("x", ["a", "bc"]))
    assert content_crc(text) != content_crc(text[::-1])
    padded = np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    dirty = np.frombuffer(b"\0" + b"\1" * 7 + bytes(24), padded.dtype)
    assert (padded == dirty).all()
    assert content_crc(padded) == content_crc(dirty)
    mixed = np.array([(1, b"a"), (2, b"b")], [("n", "i4"), ("s", "O")])
    assert content_crc(mixed[1:], content_crc(mixed[:1])) == content_crc(mixed)
    assert content_crc(mixed) != content_crc(mixed[::-1])
    rows = np.zeros(100, "u1")
    hashes = {content_crc(rows)}
    for i in range(100):
        rows[i] ^= 4
        hashes.add(content_crc(rows))
    assert len(hashes) == 101
    assert content_crc(np.zeros((4, 0), "f4")) == 0
