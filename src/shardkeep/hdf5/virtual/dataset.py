"""Virtual datasets without fill values for what cannot be read.

HDF5 silently returns fill values for a source that is missing, cannot be read, or cannot be opened for lack
of a descriptor, and clips values into a narrower type. So virtual datasets are not read by HDF5: their
mappings are read (`layout`), every source is checked when the file is opened, and rows are read from the
sources themselves, one file after another, each checked again for the price of a ``stat``.

This applies to any number of mappings whose both sides are boxes (merges along any axis, stacked arrays).
Datasets with other mappings are read by HDF5 between two checks of every source, with all sources open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import BudgetError
from shardkeep.hdf5.locking.open_file_budget import max_open_files
from shardkeep.hdf5.storage.names import encode_name
from shardkeep.hdf5.virtual.boxes import (
    Boxes,
    axis_selections,
    boxes_touched,
    is_range_of_rows,
    read_box,
    with_fields_and_type,
)
from shardkeep.hdf5.virtual.contiguous_rows import ContiguousRows
from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["VirtualDataset"]


class VirtualDataset:
    """A virtual dataset that is read from its checked sources."""

    def __init__(self, sources: VirtualSources) -> None:
        self.shape = sources.layout.shape
        self.dtype: np.dtype[Any] = sources.dtype
        self._sources = sources
        self._is_checked = False
        # None if a mapping is not between two boxes.
        self._boxes: Boxes | None = None
        # If all boxes are rows and do not overlap, so that they may be read in any order.
        self._contiguous: ContiguousRows | None = None
        self._tiles = False
        self._fill: np.ndarray[Any, Any] | None = None

    def check(self) -> None:
        """Check every source.

        Raises
        ------
        ShardkeepError, PermissionError
            One is missing, cannot be read, is too short or of another type; the message names it.
        """
        changed = self._sources.files.changed()
        if self._is_checked and not len(changed):
            self._sources.check_nested()
            return
        self._is_checked = False
        self._sources.check(changed)
        self._arrange()
        self._is_checked = True

    def close_sources(self) -> None:
        """Close all open sources, so that their locks are free."""
        self._sources.close()

    def read(self, dataset: Any, args: Any, new_dtype: Any = None) -> Any:
        """Return the value of ``dataset[args]``."""
        if self._boxes is None:
            return self._read_by_hdf5(dataset, args, new_dtype)
        args = args if isinstance(args, tuple) else (args,)
        names = [one for one in args if isinstance(one, str)]
        selections = axis_selections(tuple(one for one in args if not isinstance(one, str)), self.shape)
        if selections is None:
            # A mask or a region over all axes: all rows are read first.
            mask = args[0]
            return with_fields_and_type(self.read(dataset, ())[np.asarray(mask)], names, new_dtype)
        out_shape = tuple(one.count for one in selections)
        out = np.empty(out_shape, self.dtype)
        if not self._tiles:
            out[...] = b"" if self.dtype.hasobject else self._fill_value(dataset)
        hits: Iterable[int]
        if self._contiguous is not None and is_range_of_rows(selections, self.shape):
            hits = rows = self._contiguous.between(selections[0].first, selections[0].last + 1)
            if self._sources.as_in_memory and out.size > 0:
                hits = self._contiguous.read(out, selections[0].first, rows)
        else:
            hits = boxes_touched(selections, self._boxes.low, self._boxes.high).tolist()
        for index in hits:
            source = self._sources[int(self._boxes.numbers[index])]
            read_box(self._boxes, index, source, selections, out)
        keep = tuple(0 if one.single else slice(None) for one in selections)
        return with_fields_and_type(
            out[keep] if any(one.single for one in selections) else out, names, new_dtype
        )

    def _arrange(self) -> None:
        """Compare the mappings with the sources, and sort the boxes."""
        layout, sources = self._sources.layout, self._sources
        dimensions = sources.dimensions[layout.numbers]
        widest = max(len(self.shape), layout.source_high.shape[1], int(dimensions.max(initial=0)))
        shapes = sources.shapes[:, :widest][layout.numbers]
        whole = layout.source_dimensions < 0
        sizes = (layout.high - layout.low).prod(axis=1)
        wrong = whole & layout.is_box & (shapes.prod(axis=1) != sizes)
        width = layout.source_high.shape[1]
        short = (dimensions != layout.source_dimensions) | (layout.source_high > shapes[:, :width]).any(
            axis=1
        )
        wrong |= ~whole & short
        if wrong.any():
            first = int(wrong.argmax())
            bounds = tuple(layout.source_high[first, : max(0, layout.source_dimensions[first])].tolist())
            source = sources[int(layout.numbers[first])]
            source.refuse(None if whole[first] else bounds, int(sizes[first]))
        self._boxes, self._contiguous, self._tiles = None, None, False
        if not (layout.is_box.all() and layout.is_source_box.all()):
            return
        width = int(dimensions.max(initial=0))
        # A mapping of a whole source has zeros here, or no columns.
        source_low, source_high = (
            np.pad(one[:, :width], [(0, 0), (0, max(0, width - one.shape[1]))])
            for one in (layout.source_low, layout.source_high)
        )
        exists = np.arange(width) < dimensions[:, None]
        source_high = np.where(whole[:, None] & exists, shapes[:, :width], source_high)
        boxes = Boxes.of_mappings(
            layout.low, layout.high, source_low, source_high, dimensions, layout.numbers
        )
        self._boxes = boxes
        if boxes is None or not boxes.are_rows(self.shape, shapes):
            return
        order = np.argsort(boxes.low[:, 0], kind="stable")
        self._boxes = boxes = boxes.in_order(order)
        if (boxes.low[1:, 0] >= boxes.high[:-1, 0]).all():
            row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
            self._contiguous = ContiguousRows(sources, boxes, row_bytes)
            # There are no fill values if the boxes cover all rows.
            self._tiles = int((boxes.high[:, 0] - boxes.low[:, 0]).sum()) == self.shape[0]

    def _fill_value(self, dataset: Any) -> np.ndarray[Any, Any]:
        if self._fill is None:
            self._fill = np.zeros((), self.dtype)
            dataset.id.get_create_plist().get_fill_value(self._fill)
        return self._fill

    def _read_by_hdf5(self, dataset: Any, args: Any, new_dtype: Any) -> Any:
        sources = self._sources
        if len(sources) > max_open_files() - 2:
            message = f"{sources.name!r} of {sources.path!r} maps {len(sources)} sources otherwise than"
            raise BudgetError(
                f"{message} by boxes; {max_open_files()} may be open: raise ulimit -n, or merge by copying",
                path=sources.path,
            )
        self.check()
        each = [sources[number] for number in range(len(sources))]
        before = [source.version for source in each]
        held = [source.open() for source in each]
        for one in held:
            one.pins += 1
        try:
            # HDF5 keeps the state of the sources from the opening: this read opens the dataset again.
            oid = h5py.h5d.open(dataset.file._id, encode_name(sources.name))
            rows = h5py.Dataset(oid).__getitem__(args, new_dtype=new_dtype)
        finally:
            for one in held:
                one.pins -= 1
        self.check()
        for source, known in zip(each, before, strict=True):
            if source.version != known:
                source.refuse_change()
        return rows
