from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shardkeep.errors import SchemaError
from shardkeep.tfrecord import Ragged

DTYPES = st.sampled_from([np.dtype(np.int64), np.dtype(np.float32), np.dtype(object), np.dtype(np.uint8)])
INTS = st.integers(-10, 10)


def ragged_of(rows: list[np.ndarray[Any, Any]], dtype: np.dtype[Any], unused: int = 0) -> Ragged:
    """Return the rows as a Ragged with `unused` values before and after those of the rows."""
    blank = np.zeros(unused, dtype)
    offsets = np.cumsum([unused, *map(len, rows)])
    return Ragged(np.concatenate([blank, *rows, blank]).astype(dtype), offsets)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Ragged, list[np.ndarray[Any, Any]]]:
    """Draw a Ragged and the list of its rows, which is the model."""
    dtype = draw(DTYPES)
    value = st.binary(max_size=3) if dtype.hasobject else st.integers(0, 255)
    rows = []
    for values in draw(st.lists(st.lists(value, max_size=4), max_size=7)):
        row = np.empty(len(values), dtype)
        row[:] = values
        rows.append(row)
    return ragged_of(rows, dtype, draw(st.integers(0, 2))), rows


def same(ragged: Ragged, rows: list[np.ndarray[Any, Any]]) -> bool:
    found = [np.frombuffer(row, np.uint8) if isinstance(row, bytes) else row for row in ragged]
    assert [row.dtype for row in found] == [ragged.dtype] * len(found)
    return [row.tolist() for row in found] == [row.tolist() for row in rows]


@given(cases(), st.slices(7), st.data())
def test_rows_are_selected_as_from_a_list(
    case: tuple[Ragged, list[np.ndarray[Any, Any]]], part: slice, data: st.DataObject
) -> None:
    ragged, rows = case
    assert len(ragged) == len(rows) == ragged.shape[0]
    assert same(ragged, rows)
    assert same(ragged[part], rows[part])

    mask = data.draw(arrays.arrays(bool, len(rows)))
    kept = [row for row, is_kept in zip(rows, mask, strict=True) if is_kept]
    assert same(ragged[mask], kept)
    assert same(ragged[mask.tolist()], kept) or not rows  # an empty list selects no row, as for an array
    assert ragged[mask] == ragged[np.flatnonzero(mask)]

    numbers = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=9)) if rows else []
    assert same(ragged[numbers], [rows[number] for number in numbers])
    assert same(ragged[np.array(numbers, np.int16)], [rows[number] for number in numbers])
    for number in numbers:
        one = ragged[np.int64(number)]
        assert (list(one) if isinstance(one, bytes) else one.tolist()) == rows[number].tolist()


@given(cases())
def test_lists_padding_and_equality_agree_with_the_rows(
    case: tuple[Ragged, list[np.ndarray[Any, Any]]],
) -> None:
    ragged, rows = case
    raw = ragged.dtype == np.uint8
    assert ragged.to_list() == [row.tobytes() if raw else row.tolist() for row in rows]
    assert ragged.lengths.tolist() == [len(row) for row in rows]

    fill = b"-" if ragged.dtype == object else 7
    padded = ragged.to_padded(fill)
    longest = max(map(len, rows), default=0)
    assert padded.dtype == ragged.dtype
    assert padded.tolist() == [row.tolist() + [fill] * (longest - len(row)) for row in rows]

    other = ragged_of(rows, ragged.dtype, unused=3)
    assert ragged == other == pickle.loads(pickle.dumps(ragged)) == ragged[:]
    if rows:
        assert ragged != ragged[:-1]
        changed = [*rows[:-1], np.append(rows[-1], np.zeros(1, ragged.dtype))]
        assert ragged != ragged_of(changed, ragged.dtype)


def test_padded_rows_of_a_batch_are_left_out_by_its_mask() -> None:
    tags = Ragged(np.array([b"a", b"b", b"c"], object), np.array([0, 2, 3, 3, 3]))
    valid = np.array([True, True, False, False])
    assert tags[valid].to_list() == [[b"a", b"b"], [b"c"]]


def test_equal_lengths_do_not_make_other_values_equal() -> None:
    ragged = Ragged(np.arange(3), np.array([0, 1, 3]))
    assert ragged != Ragged(np.arange(3), np.array([0, 2, 3]))
    assert ragged != Ragged(np.array([0, 1, 3]), np.array([0, 1, 3]))
    assert ragged == Ragged(np.arange(3.0), np.array([0, 1, 3]))
    assert ragged != Ragged(np.arange(3).astype(np.uint8), np.array([0, 1, 3])), "its rows are bytes"
    assert ragged != [[0], [1, 2]]
    nan = Ragged(np.array([np.nan]), np.array([0, 1]))
    assert nan != nan[:], "as in NumPy"


def test_slice_shares_the_values_and_an_array_copies_them() -> None:
    ragged = Ragged(np.arange(6), np.array([0, 1, 3, 6]))
    assert np.shares_memory(ragged[1:].values, ragged.values)
    for selected in (ragged[[1, 2]], ragged[[2, 0]], ragged[np.array([True] * 3)]):
        assert not np.shares_memory(selected.values, ragged.values)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (3, "row 3 is out of range: there are 3 rows"),
        (-4, "row -4 is out of range: there are 3 rows"),
        ([0, 5], "row 5 is out of range"),
        (np.array([0, -9]), "row -9 is out of range"),
        (np.array([True, False]), "a mask of 2 booleans does not fit 3 rows"),
        (np.ones(4, bool), "a mask of 4 booleans does not fit 3 rows"),
        (np.zeros(0), "not by an array of float64 and shape (0,)"),
        ([0.0, 1.0], "not by an array of float64 and shape (2,)"),
        (np.zeros((1, 1), int), "not by an array of int64 and shape (1, 1)"),
        ((0, 1), "not by (0, 1)"),
        (True, "not by True"),
        (None, "not by None"),
        (..., "not by Ellipsis"),
        ("a", "not by 'a'"),
        (1.0, "not by 1.0"),
    ],
    ids=repr,
)
def test_other_indexes_are_refused_as_numpy_does(index: Any, message: str) -> None:
    ragged = Ragged(np.arange(3), np.array([0, 2, 2, 3]))
    with pytest.raises(IndexError) as caught:
        ragged[index]
    assert message in str(caught.value)


def test_fill_that_the_dtype_cannot_hold_is_refused() -> None:
    ints = Ragged(np.arange(3), np.array([0, 2, 3]))
    assert ints.to_padded(np.int8(-1)).tolist() == [[0, 1], [2, -1]]
    for fill in (0.5, np.nan, b"", None, 2**70, [1, 2]):
        with pytest.raises(SchemaError, match="fill="):
            ints.to_padded(fill)
    floats = Ragged(np.arange(3, dtype=np.float32), np.array([0, 2, 3]))
    assert np.isnan(floats.to_padded(np.nan)[1, 1])
    assert floats.to_padded(0.1)[1, 1] == np.float32(0.1)
    with pytest.raises(SchemaError, match="b'' is not a value of float32"):
        floats.to_padded(b"")


def test_array_of_rows_of_one_length() -> None:
    same_lengths = Ragged(np.arange(4), np.array([0, 2, 4]))
    assert np.asarray(same_lengths).tolist() == [[0, 1], [2, 3]]
    assert np.array(same_lengths, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match=r"rows of 1 to 3 values: use to_padded\(fill\)"):
        np.asarray(Ragged(np.arange(4), np.array([0, 1, 4])))
    raw = Ragged(np.frombuffer(b"a\0bc", np.uint8), np.array([0, 2, 4]))
    assert np.asarray(raw).tolist() == [b"a\0", b"bc"], "no NUL is lost"
    strings = Ragged(np.array([b"a\0", b"b"], object), np.array([0, 1, 2]))
    assert np.asarray(strings).tolist() == [[b"a\0"], [b"b"]]


@pytest.mark.parametrize(
    ("values", "offsets", "message"),
    [
        ([1, 2], np.array([0, 2]), "values of a Ragged must be an array of one dimension, not list"),
        (np.zeros((2, 2)), np.array([0, 2]), "not of shape (2, 2)"),
        (np.arange(2), [0, 2], "offsets of a Ragged must be an array of one dimension, not list"),
        (np.arange(2), np.array([0.0, 2.0]), "rows + 1 integers, not 2 of float64"),
        (np.arange(2), np.zeros(0, int), "rows + 1 integers, not 0 of int64"),
        (np.arange(2), np.array([0, 4]), "the number of values, 2, not from 0 to 4"),
        (np.arange(2), np.array([-1, 2]), "not from -1 to 2"),
    ],
)
def test_arrays_that_hold_no_rows_are_refused(values: Any, offsets: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Ragged(values, offsets)
    assert message in str(caught.value)


def test_long_rows_are_selected_in_any_order() -> None:
    rows = [np.full(1000 * length, length) for length in (3, 1, 0, 2)]
    ragged = ragged_of(rows, np.dtype(np.int64), unused=1)
    assert same(ragged[[3, 2, 0, 3]], [rows[3], rows[2], rows[0], rows[3]])


def test_a_million_rows_are_selected_and_padded() -> None:
    rows = 1_000_000
    ragged = Ragged(np.arange(2 * rows), np.arange(0, 2 * rows + 1, 2))
    chosen = ragged[np.arange(rows)[::-1]]
    assert chosen.values[:2].tolist() == [2 * rows - 2, 2 * rows - 1]
    assert ragged.to_padded(0).shape == (rows, 2)
    assert "1000000 rows, 2000000 values of int64" in repr(ragged)
