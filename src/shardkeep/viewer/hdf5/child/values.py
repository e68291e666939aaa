"""Values of a dataset, also of a virtual one, from files within the root."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

from shardkeep.errors import BudgetError, SchemaError, UntrustedFileError
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import filter_codes, offer_filters, require_filters
from shardkeep.hdf5.storage.names import decode_name
from shardkeep.hdf5.virtual.layout import VirtualLayout, read_virtual_layout
from shardkeep.hdf5.virtual.source_search import SourceSearch
from shardkeep.viewer.hdf5.child.opening import OpenFile, find

__all__ = ["Values"]

_MOST_SOURCES = 256
_MOST_NESTED = 8


class Values:
    """The values of an open dataset.

    Parameters
    ----------
    file : OpenFile
    dataset : h5py.h5d.DatasetID
    path : str
        Path of the dataset in the file.

    Attributes
    ----------
    shape : tuple of int
    dtype : dtype
    chunks : tuple of int or None
    """

    def __init__(self, file: OpenFile, dataset: h5py.h5d.DatasetID, path: str, *, depth: int = 0) -> None:
        self._file, self._dataset, self._path, self._depth = file, dataset, path, depth
        self.shape: tuple[int, ...] = tuple(dataset.shape)
        self.dtype: np.dtype[Any] = dataset.dtype
        self._properties = dataset.get_create_plist()
        layout = self._properties.get_layout()
        self.chunks = self._properties.get_chunk() if layout == h5py.h5d.CHUNKED else None
        self._layout: VirtualLayout | None = None
        self._is_virtual = layout == h5py.h5d.VIRTUAL

    def read(self, *selection: slice) -> Any:
        """Return the values of a selection.

        Parameters
        ----------
        *selection : slice
            Start, stop and step of each axis, within the shape.

        Raises
        ------
        UntrustedFileError
            The values are in a file outside of the root, or in external raw storage.
        SchemaError
            The mappings of the virtual dataset are not between boxes.
        BudgetError
            The selection comes from too many files.
        ShardkeepError
            A source cannot be read.
        """
        if self._properties.get_external_count():
            name = self._properties.get_external(0)[0].decode("utf-8", "backslashreplace")
            message = (
                f"the values are in another file, {name!r}, as plain bytes, which this page does not read"
            )
            raise UntrustedFileError(message, path=self._file.path)
        if self._is_virtual:
            return self._read_virtual(selection)
        if self.dtype.hasobject:
            refuse_damage(self._file.path, rows=True)
        offer_filters(filter_codes(self._properties))
        dataset = h5py.Dataset(self._dataset, readonly=True)
        try:
            rows = dataset[selection]
        except (OSError, RuntimeError):
            require_filters(dataset)
            raise
        return in_stored_order(rows, self.dtype)

    def _read_virtual(self, selection: tuple[slice, ...]) -> Any:
        if self._layout is None:
            self._layout = read_virtual_layout(self._file.fid, self._file.path, self._path, self._dataset)
        layout = self._layout
        if not (layout.is_box.all() and layout.is_source_box.all()):
            raise SchemaError(
                f"{self._path!r} maps parts of its sources that are not boxes; read it with h5py"
            )
        out = np.zeros([len(range(one.start, one.stop, one.step)) for one in selection], self.dtype)
        if self.dtype.hasobject:
            out[...] = b""
        else:
            fill = np.zeros((), self.dtype)
            self._properties.get_fill_value(fill)
            out[...] = fill
        first = np.array([one.start for one in selection], np.int64)
        stop = np.array([one.stop for one in selection], np.int64)
        hits = np.flatnonzero(((layout.low < stop) & (layout.high > first)).all(axis=1))
        if len(hits) > _MOST_SOURCES or self._depth > _MOST_NESTED:
            raise BudgetError(f"these values come from {len(hits):,} mappings of other files; show fewer")
        for index in hits.tolist():
            self._copy(layout, index, selection, out)
        return out

    def _copy(self, layout: VirtualLayout, index: int, selection: tuple[slice, ...], out: Any) -> None:
        """Copy the part of one mapping that is selected."""
        number = int(layout.numbers[index])
        search = SourceSearch(self._file.path, merged=True)
        file = self._file.source(search.find(layout.files[number]).decode("utf-8", "surrogateescape"))
        name = decode_name(layout.datasets[number])
        dataset = find(file, name)
        if not isinstance(dataset, h5py.h5d.DatasetID):
            raise SchemaError(f"{name!r} of {file.path!r} is not a dataset: restore it from a copy")
        source = Values(file, dataset, name, depth=self._depth + 1)
        if layout.source_dimensions[index] < 0:
            box = [(0, n) for n in source.shape]
        else:
            low, high = layout.source_low[index].tolist(), layout.source_high[index].tolist()
            box = list(zip(low, high, strict=True))[: len(source.shape)]
        low, high = layout.low[index].tolist(), layout.high[index].tolist()
        # Axes of length 1 may be missing on either side, such as in images that are stacked.
        wide = [axis for axis in range(len(low)) if high[axis] - low[axis] != 1]
        extents = [b - a for a, b in box]
        if [n for n in extents if n != 1] != [high[axis] - low[axis] for axis in wide] or any(
            b > n for (_, b), n in zip(box, source.shape, strict=False)
        ):
            raise SchemaError(
                f"{name!r} of {file.path!r} has shape {source.shape}, which is not what is mapped"
            )
        taken, places = [], []
        for axis, one in enumerate(selection):
            begin = max(0, -(-(low[axis] - one.start) // one.step))
            end = min(out.shape[axis], -(-(high[axis] - one.start) // one.step))
            places.append(slice(begin, end))
            if begin >= end:
                return
            if axis in wide:
                taken.append((one.start + begin * one.step - low[axis], end - begin, one.step))
        parts = []
        for a, b in box:
            if b - a == 1:
                parts.append(slice(a, b, 1))
            else:
                at, count, step = taken.pop(0)
                parts.append(slice(a + at, a + at + (count - 1) * step + 1, step))
        target = out[tuple(places)]
        target[...] = np.reshape(source.read(*parts), target.shape)
