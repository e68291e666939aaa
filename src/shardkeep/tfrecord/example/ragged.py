"""Rows of different lengths in two arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from shardkeep.errors import SchemaError

__all__ = ["Ragged"]

# From this mean number of values on, copying row by row takes less time than gathering single values.
_LONG_ROW = 128


class Ragged:
    """Rows of different lengths: all values in one array, and the offset of each row.

    Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``, which is Arrow's layout of a list array and the
    flat form of TensorFlow's ragged tensors. It is indexed along the rows as an array is: by a number, a
    slice, a boolean mask or an array of row numbers.

    Parameters
    ----------
    values : ndarray
        One-dimensional; of dtype uint8 for raw records, object (of `bytes`) for byte strings.
    offsets : ndarray of int64, shape (rows + 1,)
        Ascending, from 0 to ``len(values)``.

    Raises
    ------
    SchemaError
        The arrays do not have one dimension, or the offsets are not within the values.

    Notes
    -----
    Two of them are equal if all their rows are; the values compare as in NumPy, where NaN differs from NaN.
    A row of uint8 values is `bytes`.

    Examples
    --------
    >>> ragged = Ragged(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
    >>> len(ragged), ragged[0], ragged[1]
    (3, array([1, 2]), array([], dtype=int64))
    >>> ragged[np.array([True, False, True])].to_list()
    [[1, 2], [3]]
    >>> ragged.to_padded(-1)
    array([[ 1,  2],
           [-1, -1],
           [ 3, -1]])
    >>> raw = Ragged(np.frombuffer(b"abcde", np.uint8), np.array([0, 3, 5]))
    >>> raw[-1]
    b'de'
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: npt.NDArray[Any], offsets: npt.NDArray[np.integer[Any]]) -> None:
        for name, array in (("values", values), ("offsets", offsets)):
            if not isinstance(array, np.ndarray) or array.ndim != 1:
                found = f"of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
                raise SchemaError(f"{name} of a Ragged must be an array of one dimension, not {found}")
        if offsets.dtype.kind not in "iu" or not len(offsets):
            raise SchemaError(
                f"offsets of a Ragged must be rows + 1 integers, not {len(offsets)} of {offsets.dtype}"
            )
        if not 0 <= offsets[0] <= offsets[-1] <= len(values):
            raise SchemaError(
                f"offsets of a Ragged must ascend from 0 to the number of values, {len(values)}, not from"
                f" {offsets[0]} to {offsets[-1]}"
            )
        self.values = values
        self.offsets: npt.NDArray[np.int64] = offsets.astype(np.int64, copy=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, None]:
        """``(rows, None)``, since the rows have different lengths."""
        return len(self), None

    @property
    def ndim(self) -> int:
        """Number of dimensions, 2."""
        return 2

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values of each row, shape (rows,)."""
        lengths: npt.NDArray[np.int64] = np.diff(self.offsets)
        return lengths

    def to_list(self) -> list[Any]:
        """Return the rows as lists of Python values; as `bytes` where the values are uint8.

        Returns
        -------
        list of list, or list of bytes

        Examples
        --------
        >>> Ragged(np.array([0.5, 1.0]), np.array([0, 0, 2])).to_list()
        [[], [0.5, 1.0]]
        """
        flat = self.values.tobytes() if self._is_raw else self.values.tolist()
        return [flat[start:stop] for start, stop in pairwise(self.offsets.tolist())]

    def to_padded(self, fill: Any) -> npt.NDArray[Any]:
        """Return the rows as an array in which shorter rows end with `fill`.

        Parameters
        ----------
        fill : object
            Value of the dtype; `bytes` for byte strings.

        Returns
        -------
        ndarray, shape (rows, longest row)
            A copy, of the same dtype.

        Raises
        ------
        SchemaError
            The dtype has no such value.

        Examples
        --------
        >>> Ragged(np.array([b"a", b"b"], object), np.array([0, 2, 2])).to_padded(b"")
        array([[b'a', b'b'],
               [b'', b'']], dtype=object)
        """
        lengths = self.lengths
        padded = np.empty((len(self), int(lengths.max(initial=0))), self.dtype)
        padded.fill(self._as_value(fill))
        padded[np.arange(padded.shape[1]) < lengths[:, np.newaxis]] = self._used_values
        return padded

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, rows: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, rows: slice | Sequence[int] | npt.NDArray[Any]) -> Ragged: ...

    def __getitem__(self, rows: Any) -> Any:
        """Return one row (a view of `values`, or `bytes`), or a `Ragged` of several.

        Parameters
        ----------
        rows : int, slice, or array
            Row numbers, of which negative ones count from the end, or a boolean for each row. The result of
            a slice with step 1 shares the values; that of an array is a copy.

        Raises
        ------
        IndexError
            As NumPy: a number is out of range, a mask has another length, or the index has another type.
        """
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._consecutive(start, max(start, stop))
            return self._rows(np.arange(start, stop, step))
        if not isinstance(rows, (bool, np.bool_)):
            try:
                row = operator.index(rows)
            except TypeError:
                pass
            else:
                return self._row(row)
        return self._rows(self._row_numbers(rows))

    def __iter__(self) -> Iterator[Any]:
        return (self._row(row) for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return (
            self._is_raw == other._is_raw
            and np.array_equal(self.lengths, other.lengths)
            and np.array_equal(self._used_values, other._used_values)
        )

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the rows as an array: of `bytes` for raw records, otherwise of rows of one length."""
        array: npt.NDArray[Any]
        if self._is_raw:
            array = np.empty(len(self), object)
            array[:] = self.to_list()
        else:
            lengths = self.lengths
            shortest, longest = int(lengths.min(initial=len(self.values))), int(lengths.max(initial=0))
            if shortest < longest:
                raise ValueError(
                    f"inhomogeneous rows of {shortest} to {longest} values: use to_padded(fill) or to_list()"
                )
            array = self._used_values.reshape(len(self), longest)
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype=dtype)

    def __repr__(self) -> str:
        return f"<Ragged {len(self)} rows, {self.offsets[-1] - self.offsets[0]} values of {self.dtype}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.values, self.offsets)

    @property
    def _is_raw(self) -> bool:
        return self.dtype == np.uint8

    @property
    def _used_values(self) -> npt.NDArray[Any]:
        return self.values[self.offsets[0] : self.offsets[-1]]

    def _row(self, row: int) -> Any:
        rows = len(self)
        if not -rows <= row < rows:
            raise IndexError(f"row {row} is out of range: there are {rows} rows")
        row %= rows
        part = self.values[self.offsets[row] : self.offsets[row + 1]]
        return part.tobytes() if self._is_raw else part

    def _consecutive(self, start: int, stop: int) -> Ragged:
        offsets = self.offsets[start : stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def _rows(self, rows: npt.NDArray[np.int64]) -> Ragged:
        """Return a copy of rows, all of which exist."""
        lengths = self.lengths[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > _LONG_ROW * len(rows):
            return Ragged(
                np.concatenate([self.values[self.offsets[r] : self.offsets[r + 1]] for r in rows]), offsets
            )
        places = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        places += np.arange(len(places))
        return Ragged(self.values[places], offsets)

    def _row_numbers(self, index: Any) -> npt.NDArray[np.int64]:
        """Return the numbers, from 0, of the rows that a mask or an array of numbers selects."""
        rows = len(self)
        array = np.asarray(None if isinstance(index, tuple) else index)
        if isinstance(index, list) and not index:
            array = array.astype(np.int64)
        if array.ndim != 1 or array.dtype.kind not in "biu":
            found = f"an array of {array.dtype} and shape {array.shape}" if array.ndim else repr(index)
            raise IndexError(
                "rows of a Ragged are selected by an integer, a slice, a boolean for each row or"
                f" an array of integers, not by {found}"
            )
        if array.dtype == bool:
            if len(array) != rows:
                raise IndexError(
                    f"a mask of {len(array)} booleans does not fit {rows} rows: pass one for each"
                )
            return np.flatnonzero(array)
        numbers = array.astype(np.int64)
        wrong = numbers[(numbers < -rows) | (numbers >= rows)]
        if wrong.size:
            raise IndexError(f"row {wrong[0]} is out of range: there are {rows} rows")
        return np.where(numbers < 0, numbers + rows, numbers)

    def _as_value(self, fill: Any) -> Any:
        """Return `fill` as a value of the dtype."""
        if self.dtype == object:
            return fill
        value = np.zeros((), self.dtype)
        try:
            value[()] = fill
            is_value = self.dtype.kind not in "iu" or bool(value == fill)
        except (TypeError, ValueError, OverflowError):
            is_value = False
        if not is_value:
            raise SchemaError(
                f"fill={fill!r} is not a value of {self.dtype}: pass one, or convert the values"
            )
        return value
