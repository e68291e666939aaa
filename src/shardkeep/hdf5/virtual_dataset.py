"""Virtual datasets without fill values for what cannot be read.

HDF5 fills in silently for a source that is missing, may not be read, or finds no descriptor left, and clips
values into a narrower type. So HDF5 is not asked to read a virtual dataset here: the mapping is read from
its properties, every source is checked when the file is opened, and rows are read from the sources
themselves, one file after another, each looked at again for the price of a ``stat``.

A mapping whose both sides are boxes (merges along any axis, stacked arrays) is read so, whatever their
number. Other mappings are left to HDF5, between two looks at every source, with all of them open.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np

from shardkeep._core import KnownFiles
from shardkeep.errors import BudgetError, SchemaError
from shardkeep.hdf5.box_reading import Box, axis_picks, finish, gather, intersecting, is_run
from shardkeep.hdf5.checked_sources import layout_digest, sources_in
from shardkeep.hdf5.open_files import file_budget
from shardkeep.hdf5.plain_rows import PlainRows, known_files
from shardkeep.hdf5.virtual_source import VirtualSource, source_path

__all__ = ["VirtualDataset", "find_virtual", "is_virtual"]

# About 3 ms; what comes later is checked when it is first asked for.
_MOST_LINKS = 64


def is_virtual(layout: h5py.h5p.PropDCID) -> bool:
    """Whether the creation properties are those of a virtual dataset."""
    return bool(layout.get_layout() == h5py.h5d.VIRTUAL)


def find_virtual(file_id: h5py.h5f.FileID) -> dict[str, h5py.h5d.DatasetID]:
    """Return path and identifier of the virtual datasets among the first 64 objects of a file."""
    found: dict[str, h5py.h5d.DatasetID] = {}
    seen = 0

    def visit(name: bytes) -> bool | None:
        nonlocal seen
        seen += 1
        if seen > _MOST_LINKS:
            return True
        try:
            dataset = h5py.h5d.open(file_id, name)
        except (OSError, RuntimeError, KeyError, ValueError, TypeError):
            return None  # a group, a named type, or damaged: whoever wants it will see
        if is_virtual(dataset.get_create_plist()):
            found["/" + name.decode("utf-8", "surrogateescape")] = dataset
        return None

    h5py.h5o.visit(file_id, visit)
    return found


class VirtualDataset:
    """The mapping of a virtual dataset, and its reader.

    Parameters
    ----------
    file_path : str
        Absolute path of the file that it is in.
    name : str
    oid : h5py.h5d.DatasetID
    table : ndarray, optional
        What a merge found out about the sources (`shardkeep.hdf5.checked_sources`).
    """

    def __init__(
        self,
        file_path: str,
        name: str,
        oid: h5py.h5d.DatasetID,
        table: np.ndarray[Any, Any] | None = None,
    ) -> None:
        self.file_path = file_path
        self.name = name
        self.shape = tuple(oid.shape)
        self.dtype = oid.dtype
        self._stored = oid.get_type().copy()
        self._as_in_memory = (
            not self.dtype.hasobject
            and self.dtype.itemsize > 0
            and bool(h5py.h5t.py_create(self.dtype, logical=True) == self._stored)
        )
        self.sources: dict[tuple[str, str], VirtualSource] = {}
        own_name = name.lstrip("/")
        self._of_merge = table is not None
        self._merged = {} if table is None else sources_in(table, own_name, layout_digest(oid))
        self._mappings: list[tuple[VirtualSource, Any, Any]] = []
        self._boxes: list[Box] | None = None
        self._known: KnownFiles | None = None
        self._is_boxes = True
        properties = oid.get_create_plist()
        for index in range(properties.get_virtual_count()):
            self._add(properties, index)
        self._fill = np.zeros((), self.dtype)
        if not self.dtype.hasobject:
            properties.get_fill_value(self._fill)

    def check(self) -> None:
        """Look at every source.

        Raises
        ------
        ShardkeepError, PermissionError
            One is missing, may not be read, is too short or of another type; the message names it.
        """
        if self._boxes is not None and self._is_as_checked():
            return
        self._known = None
        boxes = []
        for source, there, here in self._mappings:
            if here is not None:
                source.check(here[1])
            else:  # all of the source, whatever its shape; it must be as much as the mapping takes
                here = source.check_all(_size(there))
            box = None
            if there is not None and here[0] is not None:
                box = Box.fitting(there[0], there[1], here[0], here[1], source)
            if box is None:
                self._is_boxes = False
            else:
                boxes.append(box)
        self._known = known_files(self.sources.values())
        self._arrange(boxes)

    def close_sources(self) -> None:
        """Close what is open of the sources, so that their locks are free."""
        for source in self.sources.values():
            source.close()

    def read(self, dataset: Any, args: Any, new_dtype: Any = None) -> Any:
        """Return what ``dataset[args]`` is."""
        if not self._is_boxes or self._boxes is None:
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
            out[...] = b"" if self.dtype.hasobject else self._fill
        if self._rises and is_run(picks, self.shape):
            rows = self._rows_between(picks[0].first, picks[0].last + 1)
            plain = self._as_in_memory and out.size > 0
            hits: Sequence[int] = self._read_plain(picks[0].first, rows, out) if plain else rows
        else:
            hits = intersecting(picks, self._low, self._high).tolist()
        for index in hits:
            gather(self._boxes[index], picks, out)
        keep = tuple(0 if pick.single else slice(None) for pick in picks)
        return finish(out[keep] if any(pick.single for pick in picks) else out, names, new_dtype)

    def _is_as_checked(self) -> bool:
        if self._known is None or self._known.changed() is not None:
            return False
        return all(source.is_as_checked() for source in self.sources.values() if source.nested)

    def _arrange(self, boxes: list[Box]) -> None:
        axes = len(self.shape)
        whole = self._is_boxes and axes > 0 and all(box.is_rows(self.shape) for box in boxes)
        if whole:
            boxes = sorted(boxes, key=lambda box: box.low[0])
        self._low = np.array([box.low for box in boxes], np.int64).reshape(len(boxes), axes)
        self._high = np.array([box.high for box in boxes], np.int64).reshape(len(boxes), axes)
        self._boxes = boxes
        self._plain: PlainRows | None = None
        # Where boxes overlap, the order in which they are read counts.
        self._rises = whole and bool((self._low[1:, 0] >= self._high[:-1, 0]).all())
        # Nothing to fill in where they are all rows.
        covered = int((self._high[:, 0] - self._low[:, 0]).sum()) if self._rises else -1
        self._tiles = self._rises and covered == self.shape[0]

    def _rows_between(self, first: int, stop: int) -> range:
        """The boxes that have rows of ``[first, stop)``."""
        begin = np.searchsorted(self._high[:, 0], first, side="right")
        end = np.searchsorted(self._low[:, 0], stop)
        return range(int(begin), max(int(begin), int(end)))

    def _read_plain(self, first: int, hits: range, out: np.ndarray[Any, Any]) -> list[int]:
        """Read what lies in the sources as it does in memory; return the boxes that are left."""
        assert self._boxes is not None
        if self._plain is None:
            row_bytes = self.dtype.itemsize * math.prod(self.shape[1:])
            self._plain = PlainRows(self._boxes, self._low[:, 0], self._high[:, 0], row_bytes)
        left, doubtful = self._plain.read(out, first, hits)
        if doubtful:
            self._plain = None  # their sources are looked at again now
        return left

    def _add(self, properties: Any, index: int) -> None:
        names = [
            _decoded(properties.get_virtual_filename(index)),
            _decoded(properties.get_virtual_dsetname(index)),
        ]
        there = _box(properties.get_virtual_vspace(index), self.shape)
        if there == "open" or any("%b" in name.replace("%%", "") for name in names):
            message = f"{self.name!r} of {self.file_path!r} has an unknown number of sources (%b, unlimited)"
            advice = "so a missing one cannot be told: open with check_sources=False"
            raise SchemaError(f"{message}, {advice}", path=self.file_path)
        file_name, set_name = (name.replace("%%", "%") for name in names)
        source = self.sources.get((file_name, set_name))
        if source is None:
            path = source_path(self.file_path, file_name, merged=self._of_merge)
            source = VirtualSource(
                self.file_path,
                path,
                set_name,
                self.name,
                self.dtype,
                self._stored,
                as_in_memory=self._as_in_memory,
                merged=self._merged.get(file_name) if set_name == self.name.lstrip("/") else None,
                row_shape=self.shape[1:],
            )
            self.sources[file_name, set_name] = source
        space = properties.get_virtual_srcspace(index)
        here = None
        if space.get_select_type() != h5py.h5s.SEL_ALL:
            here = _box(space, ())
            if not isinstance(here, tuple):  # only its bounds are known, which is enough to check it
                here = None, tuple(int(one) + 1 for one in space.get_select_bounds()[1])
        self._mappings.append((source, there, here))

    def _read_by_hdf5(self, dataset: Any, args: Any, new_dtype: Any) -> Any:
        if len(self.sources) > file_budget() - 2:
            message = (
                f"{self.name!r} of {self.file_path!r} maps {len(self.sources)} sources in another way than"
            )
            raise BudgetError(
                f"{message} by boxes, and {file_budget()} may be open: raise ulimit -n, or merge by copying",
                path=self.file_path,
            )
        self.check()
        before = [source.signature for source in self.sources.values()]
        held = [source.open() for source in self.sources.values()]
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
        for source, known in zip(self.sources.values(), before, strict=True):
            if source.signature != known:
                source.changed()
        return rows


def _box(space: h5py.h5s.SpaceID, shape: tuple[int, ...]) -> Any:
    """Return (low, high) of a selection that is one box, "open" if it has no end, None for others."""
    kind = space.get_select_type()
    if kind == h5py.h5s.SEL_ALL:
        return (0,) * len(shape), tuple(shape)
    if kind != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return None
    start, stride, count, block = space.get_regular_hyperslab()
    unlimited = h5py.h5s.UNLIMITED
    if any(one in (unlimited, 2**64 - 1, 2**32 - 1, -1) for one in (*count, *block)):
        return "open"
    high = []
    for at, step, times, size in zip(start, stride, count, block, strict=True):
        if times > 1 and step != size:
            return None
        high.append(int(at) + int(times) * int(size))
    return tuple(int(at) for at in start), tuple(high)


def _size(there: Any) -> int | None:
    if there is None:
        return None
    return int(np.prod([high - low for low, high in zip(*there, strict=True)], dtype=np.int64))


def _decoded(name: Any) -> str:
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)
