"""Intersection of a selection with the boxes of a virtual dataset, axis by axis.

A selection is one that h5py accepts: per axis a number, a slice with a positive step, or one list or mask.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.recfunctions import repack_fields

from shardkeep.errors import PlanError
from shardkeep.hdf5.virtual.sources import VirtualSource

__all__ = [
    "AxisSelection",
    "Boxes",
    "axis_selections",
    "boxes_touched",
    "is_range_of_rows",
    "read_box",
    "with_fields_and_type",
]

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Boxes:
    """Mappings as arrays of int64: the box ``[low, high)`` of the virtual dataset is a box of a source.

    Attributes
    ----------
    low, high : ndarray, shape (boxes, dimensions)
        One number per axis of the virtual dataset.
    source_low : ndarray, shape (boxes, most dimensions of a source)
        First element of the box in the source. Beyond the dimensions of a source there are zeros.
    axes : ndarray, as `source_low`
        For each axis of the source, the same axis of the virtual dataset; -1 where the source's box has
        length one and the virtual dataset has no such axis.
    source_dimensions : ndarray, shape (boxes,)
    numbers : ndarray, shape (boxes,)
        Numbers of the sources.
    """

    low: _Numbers
    high: _Numbers
    source_low: _Numbers
    axes: _Numbers
    source_dimensions: _Numbers
    numbers: _Numbers

    def in_order(self, order: _Numbers) -> Boxes:
        """Return the boxes in another order."""
        return Boxes(*(getattr(self, field.name)[order] for field in fields(self)))

    def are_rows(self, shape: tuple[int, ...], source_shapes: _Numbers) -> bool:
        """Return whether all boxes are whole rows of the virtual dataset and of their sources.

        Parameters
        ----------
        shape : tuple of int
            Shape of the virtual dataset.
        source_shapes : ndarray of int64, shape (boxes, at least as many dimensions)
        """
        dimensions, rest = len(shape), shape[1:]
        return bool(
            dimensions > 0
            and (self.source_dimensions == dimensions).all()
            and (self.axes[:, :dimensions] == np.arange(dimensions)).all()
            and (self.low[:, 1:] == 0).all()
            and (self.high[:, 1:] == rest).all()
            and (source_shapes[:, 1:dimensions] == rest).all()
        )

    @classmethod
    def of_mappings(
        cls,
        low: _Numbers,
        high: _Numbers,
        source_low: _Numbers,
        source_high: _Numbers,
        source_dimensions: _Numbers,
        numbers: _Numbers,
    ) -> Boxes | None:
        """Return the boxes; None if the two sides of a mapping differ by more than axes of length one."""
        lengths, there = high - low, source_high - source_low
        dimensions, width = lengths.shape[1], there.shape[1]
        axes = np.tile(np.arange(width), (len(numbers), 1))
        same = source_dimensions == dimensions
        if width >= dimensions:
            same &= (lengths == there[:, :dimensions]).all(axis=1)
        for index in np.flatnonzero(~same).tolist():
            of_source = there[index, : source_dimensions[index]].tolist()
            found = _axes(lengths[index].tolist(), of_source)
            if found is None:
                return None
            axes[index, : len(found)] = found
        return cls(low, high, source_low, axes, source_dimensions, numbers)


def _axes(lengths: list[int], there: list[int]) -> list[int] | None:
    """Return `Boxes.axes` for the lengths of both sides; None if longer axes than 1 differ."""
    if [n for n in lengths if n != 1] != [n for n in there if n != 1]:
        return None
    long = iter([axis for axis, n in enumerate(lengths) if n != 1])
    return [-1 if n == 1 else next(long) for n in there]


@dataclass(slots=True)  # not frozen, which takes longer to make
class AxisSelection:
    """Indices selected along one axis: ``start + step * i`` for i below `count`, or an increasing list."""

    start: int
    step: int
    count: int
    single: bool = False
    list: np.ndarray[Any, Any] | None = None

    @property
    def first(self) -> int:
        """The lowest index."""
        return self.start if self.list is None else int(self.list[0])

    @property
    def last(self) -> int:
        """The highest index."""
        return self.start + self.step * (self.count - 1) if self.list is None else int(self.list[-1])

    def within(self, low: int, high: int) -> tuple[Any, Any] | None:
        """Return the positions in the result and the indices minus `low` of those in ``[low, high)``."""
        if self.list is not None:
            begin, end = np.searchsorted(self.list, (low, high))
            if begin >= end:
                return None
            return slice(int(begin), int(end)), self.list[begin:end] - low
        begin = max(0, -((self.start - low) // self.step))
        end = min(self.count, -((self.start - high) // self.step))
        if begin >= end:
            return None
        first = self.start + begin * self.step - low
        return slice(begin, end), slice(first, first + (end - begin - 1) * self.step + 1, self.step)


def axis_selections(args: tuple[Any, ...], shape: tuple[int, ...]) -> list[AxisSelection] | None:
    """Return the selection along each axis; None if `args` is one mask over all axes.

    Raises
    ------
    IndexError, PlanError
        Out of range; not a selection that h5py accepts.
    """
    if len(args) == 1 and isinstance(args[0], np.ndarray) and args[0].dtype == bool and args[0].ndim > 1:
        if args[0].shape != shape:
            raise PlanError(f"a mask of shape {args[0].shape} does not fit shape {shape}")
        return None
    if len(args) == 1 and args[0] == () and isinstance(args[0], tuple):
        args = ()
    at = [index for index, one in enumerate(args) if one is Ellipsis]
    if len(at) > 1:
        raise PlanError("a selection may have only one ellipsis (...)")
    if at:
        missing = len(shape) - (len(args) - 1)
        args = (*args[: at[0]], *[slice(None)] * missing, *args[at[0] + 1 :])
    if len(args) > len(shape):
        raise PlanError(f"{len(args)} indices for {len(shape)} axes: pass at most one for each")
    args = (*args, *[slice(None)] * (len(shape) - len(args)))
    return [
        _axis_selection(one, length, axis) for axis, (one, length) in enumerate(zip(args, shape, strict=True))
    ]


def boxes_touched(
    selections: list[AxisSelection], low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the numbers of the boxes that may have selected elements."""
    if any(one.count == 0 for one in selections):
        return np.empty(0, np.int64)
    hit = np.ones(len(low), bool)
    for axis, one in enumerate(selections):
        hit &= (low[:, axis] <= one.last) & (high[:, axis] > one.first)
    return np.flatnonzero(hit)


def is_range_of_rows(selections: list[AxisSelection], shape: tuple[int, ...]) -> bool:
    """Return whether a selection is consecutive whole rows."""
    first, *rest = selections
    return (
        first.list is None
        and (first.step == 1 or first.count == 1)
        and all(
            one.list is None and one.step == 1 and one.count == n
            for one, n in zip(rest, shape[1:], strict=True)
        )
    )


def read_box(
    boxes: Boxes,
    index: int,
    source: VirtualSource,
    selections: list[AxisSelection],
    out: np.ndarray[Any, Any],
) -> None:
    """Read the selected part of one box into its place in `out`."""
    places, wanted = [], []
    for one, low, high in zip(selections, boxes.low[index].tolist(), boxes.high[index].tolist(), strict=True):
        found = one.within(low, high)
        if found is None:
            return
        places.append(found[0])
        wanted.append(found[1])
    target = out[(*places, ...)]  # a view even without axes, because of the dots
    parts = []
    dimensions = slice(0, int(boxes.source_dimensions[index]))
    axes, begins = boxes.axes[index, dimensions].tolist(), boxes.source_low[index, dimensions].tolist()
    for axis, begin in zip(axes, begins, strict=True):
        if axis < 0:
            parts.append(slice(begin, begin + 1, 1))
        elif isinstance(wanted[axis], slice):
            one = wanted[axis]
            parts.append(slice(one.start + begin, one.stop + begin, one.step))
        else:
            parts.append(wanted[axis] + begin)
    source.read_into(target, tuple(parts))


def with_fields_and_type(rows: Any, names: list[str], new_dtype: Any) -> Any:
    """Return rows with only some fields, and in another type."""
    if names:
        rows = rows[names[0]] if len(names) == 1 else repack_fields(rows[names])
    if new_dtype is not None and new_dtype != rows.dtype:
        new_dtype = np.dtype(new_dtype)
        if new_dtype.names is not None and rows.dtype.names is not None:
            rows = repack_fields(rows[list(new_dtype.names)])
        rows = rows.astype(new_dtype)
    # As h5py: one value is a scalar.
    return rows[()] if rows.ndim == 0 else rows


def _axis_selection(one: Any, length: int, axis: int) -> AxisSelection:
    if isinstance(one, slice):
        start, stop, step = one.indices(length)
        if step < 1:
            raise PlanError(f"a step of {step} along axis {axis}: h5py takes positive steps")
        return AxisSelection(start, step, max(0, -((start - stop) // step)))
    if isinstance(one, (list, tuple, np.ndarray)) and np.ndim(one) == 1:
        listed = np.asarray(one)
        if listed.dtype == bool:
            if len(listed) != length:
                raise PlanError(
                    f"a mask of {len(listed)} along axis {axis} of length {length}: both must be equal"
                )
            listed = np.flatnonzero(listed)
        listed = np.where(listed < 0, listed + length, listed).astype(np.int64)
        if len(listed) and (listed[0] < 0 or listed[-1] >= length):
            raise IndexError(f"an index along axis {axis} is out of range for length {length}")
        if (np.diff(listed) <= 0).any():
            raise PlanError(f"a list of indices along axis {axis} must increase: sort it")
        return AxisSelection(0, 1, len(listed), list=listed)
    try:
        index = operator.index(one)
    except TypeError:
        raise PlanError(
            f"{one!r} is not a selection along axis {axis}: use a number, a slice or a list"
        ) from None
    if index < 0:
        index += length
    if not 0 <= index < length:
        raise IndexError(f"index {one} along axis {axis} is out of range for length {length}")
    return AxisSelection(index, 1, 1, single=True)
