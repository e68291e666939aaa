"""Virtual datasets without fill values for what cannot be read.

HDF5 fills in silently for a source that is missing, may not be read, or finds no descriptor left, and clips
values into a narrower type. So HDF5 is not asked to read a virtual dataset here: its mapping is known
(`virtual_layout`), every source is checked when the file is opened, and rows are read from the sources
themselves, one file after another, each looked at again for the price of a ``stat``.

A mapping whose both sides are boxes (merges along any axis, stacked arrays) is read so, whatever their
number. Other mappings are left to HDF5, between two looks at every source, with all of them open.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import BudgetError
from shardkeep.hdf5.locking.open_file_budget import max_open_files
from shardkeep.hdf5.virtual.boxes import Boxes, axis_picks, finish, gather, intersecting, is_run
from shardkeep.hdf5.virtual.layout import VirtualLayout
from shardkeep.hdf5.virtual.plain_rows import PlainRows
from shardkeep.hdf5.virtual.source import Owner
from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["VirtualDataset"]


class VirtualDataset:
    """The mapping of a virtual dataset, and its reader.

    Parameters
    ----------
    file_path : str
        Absolute path of the file that it is in.
    name : str
    layout : VirtualLayout
    table : ndarray or None
        What a merge found out about the sources (`shardkeep.hdf5.virtual.checked_sources`).
    open_file : callable
        Opens a source by its absolute path.
    """

    def __init__(
        self,
        file_path: str,
        name: str,
        layout: VirtualLayout,
        table: np.ndarray[Any, Any] | None,
        open_file: Callable[[str], h5py.File],
    ) -> None:
        self.file_path = file_path
        self.name = name
        self.shape = layout.shape
        self.dtype: np.dtype[Any] = layout.stored.dtype
        self._layout = layout
        self._as_in_memory = (
            not self.dtype.hasobject
            and self.dtype.itemsize > 0
            and bool(h5py.h5t.py_create(self.dtype, logical=True) == layout.stored)
        )
        owner = Owner(file_path, name, self.dtype, layout.stored, self._as_in_memory, open_file)
        self._sources = VirtualSources(owner, layout, table)
        self._is_checked = False
        # None if something is no box.
        self._boxes: Boxes | None = None
        # If they are all rows, and do not overlap: then the order in which they are read does not count.
        self._plain: PlainRows | None = None
        self._tiles = False
        self._fill: np.ndarray[Any, Any] | None = None

    def check(self) -> None:
        """Look at every source.

        Raises
        ------
        ShardkeepError, PermissionError
            One is missing, may not be read, is too short or of another type; the message names it.
        """
        changed = self._sources.files.changed()
        if self._is_checked and not len(changed):
            self._sources.check_nested()
            return
        self._is_checked = False
        self._sources.look(changed)
        self._arrange()
        self._is_checked = True

    def close_sources(self) -> None:
        """Close what is open of the sources, so that their locks are free."""
        self._sources.close()

    def read(self, dataset: Any, args: Any, new_dtype: Any = None) -> Any:
        """Return what ``dataset[args]`` is."""
        if self._boxes is None:
            return self._read_by_hdf5(dataset, args, new_dtype)
        args = args if isinstance(args, tuple) else (args,)
        names = [one for one in args if isinstance(one, str)]
        picks = axis_picks(tuple(one for one in args if not isinstance(one, str)), self.shape)
        if picks is None:
            # A mask or a region over all axes: the rows are read whole, then picked from.
            mask = args[0]
            return finish(self.read(dataset, ())[np.asarray(mask)], names, new_dtype)
        out_shape = tuple(pick.count for pick in picks)
        out = np.empty(out_shape, self.dtype)
        if not self._tiles:
            out[...] = b"" if self.dtype.hasobject else self._fill_value(dataset)
        hits: Iterable[int]
        if self._plain is not None and is_run(picks, self.shape):
            hits = rows = self._plain.between(picks[0].first, picks[0].last + 1)
            if self._as_in_memory and out.size > 0:
                hits = self._plain.read(out, picks[0].first, rows)
        else:
            hits = intersecting(picks, self._boxes.low, self._boxes.high).tolist()
        for index in hits:
            gather(self._boxes.get(index, self._sources), picks, out)
        keep = tuple(0 if pick.single else slice(None) for pick in picks)
        return finish(out[keep] if any(pick.single for pick in picks) else out, names, new_dtype)

    def _arrange(self) -> None:
        """Compare the mappings with the sources, and put the boxes in order."""
        layout, sources = self._layout, self._sources
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
        self._boxes, self._plain, self._tiles = None, None, False
        if not (layout.is_box.all() and layout.is_source_box.all()):
            return
        width = int(dimensions.max(initial=0))
        # A mapping that takes all of its source has zeros here, or nothing.
        source_low, source_high = (
            np.pad(one[:, :width], [(0, 0), (0, max(0, width - one.shape[1]))])
            for one in (layout.source_low, layout.source_high)
        )
        there = np.arange(width) < dimensions[:, None]
        source_high = np.where(whole[:, None] & there, shapes[:, :width], source_high)
        boxes = Boxes.fitting(layout.low, layout.high, source_low, source_high, dimensions, layout.numbers)
        self._boxes = boxes
        if boxes is None or not boxes.are_rows(self.shape, shapes):
            return
        order = np.argsort(boxes.low[:, 0], kind="stable")
        self._boxes = boxes = boxes.in_order(order)
        if (boxes.low[1:, 0] >= boxes.high[:-1, 0]).all():
            row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
            self._plain = PlainRows(sources, boxes, row_bytes)
            # Nothing to fill in where they are all rows.
            self._tiles = int((boxes.high[:, 0] - boxes.low[:, 0]).sum()) == self.shape[0]

    def _fill_value(self, dataset: Any) -> np.ndarray[Any, Any]:
        if self._fill is None:
            self._fill = np.zeros((), self.dtype)
            dataset.id.get_create_plist().get_fill_value(self._fill)
        return self._fill

    def _read_by_hdf5(self, dataset: Any, args: Any, new_dtype: Any) -> Any:
        sources = self._sources
        if len(sources) > max_open_files() - 2:
            message = f"{self.name!r} of {self.file_path!r} maps {len(sources)} sources in another way than"
            raise BudgetError(
                f"{message} by boxes; {max_open_files()} may be open: raise ulimit -n, or merge by copying",
                path=self.file_path,
            )
        self.check()
        each = [sources[number] for number in range(len(sources))]
        before = [source.signature for source in each]
        held = [source.open() for source in each]
        for one in held:
            one.pins += 1
        try:
            # A virtual dataset keeps what it found when it was opened: an identifier for this reading alone.
            oid = h5py.h5d.open(dataset.file._id, self.name.encode("utf-8", "surrogateescape"))
            rows = h5py.Dataset(oid).__getitem__(args, new_dtype=new_dtype)
        finally:
            for one in held:
                one.pins -= 1
        self.check()
        for source, known in zip(each, before, strict=True):
            if source.signature != known:
                source.changed()
        return rows
