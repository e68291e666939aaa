"""Rows of different lengths in two arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Ragged"]


class Ragged:
    """Rows of different lengths: all values in one array, and the offset of each row.

    Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``, which is Arrow's layout of a list array and the
    flat form of TensorFlow's ragged tensors.

    Parameters
    ----------
    values : ndarray
        One-dimensional; of dtype uint8 for raw records, object (of `bytes`) for byte strings.
    offsets : ndarray of int64, shape (rows + 1,)
        Ascending, from 0 to ``len(values)``.

    Examples
    --------
    >>> ragged = Ragged(np.array([1, 2, 3]), np.array([0, 2, 2, 3]))
    >>> len(ragged), ragged[0], ragged[1]
    (3, array([1, 2]), array([], dtype=int64))
    >>> raw = Ragged(np.frombuffer(b"abcde", np.uint8), np.array([0, 3, 5]))
    >>> raw[-1]
    b'de'
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: npt.NDArray[Any], offsets: npt.NDArray[np.int64]) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        """Return a row: `bytes` for uint8 values, otherwise a view of `values`."""
        rows = len(self)
        if not -rows <= row < rows:
            raise IndexError(f"row {row} of {rows}")
        row %= rows
        part = self.values[self.offsets[row] : self.offsets[row + 1]]
        return part.tobytes() if part.dtype == np.uint8 else part

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Ragged {len(self)} rows, {len(self.values)} values of {self.values.dtype}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Ragged, (self.values, self.offsets)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of values of each row, shape (rows,)."""
        lengths: npt.NDArray[np.int64] = np.diff(self.offsets)
        return lengths
