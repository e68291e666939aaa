"""Comparison of a merged file with its sources, row by row through HDF5.

All other checks of a merge use the addresses of chunks. This one does not: HDF5 finds the rows of both files,
as it does for any program. Rows are decoded and compared by value. Of a chunk that was copied as it is, it
suffices that HDF5 returns the same stored bytes for its place in both files (H5Dread_chunk), since type,
filters and chunk shape are equal; that costs a thirtieth of decoding it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, MissingExtraError
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Part
from shardkeep.hdf5.read_errors import is_of_hdf5, reading
from shardkeep.hdf5.sources.source import blocks, open_id
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.compression import require_filters
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.layout import Layout, read_layout
from shardkeep.hdf5.storage.names import encode_name
from shardkeep.hdf5.virtual.layout import VirtualLayout, read_virtual_layout
from shardkeep.progress import Count, Progress

__all__ = ["Extent", "compare_with_sources"]

Extent = Literal["sample", "full"]

_SEED = 20
_SAMPLED_SOURCES = 32
_DECODED_SOURCES = 1  # of each layout whose chunks are copied as they are
_LEAST_VIRTUAL_SOURCES = 3  # of each dataset
_VIRTUAL_SAMPLES = 128  # of all datasets
_OPEN_MAPPINGS = 10_000
_OPEN_SOURCES = 3  # HDF5 keeps those of a virtual dataset open until it is closed
_SPAN_BYTES = 32 * 1024 * 1024


def compare_with_sources(
    path: str, plan: MergePlan, extent: Extent, progress: Progress = lambda *_: None
) -> dict[str, int]:
    """Compare rows of a merged file with those of the sources.

    Parameters
    ----------
    path : str
        The file under its temporary name. Not an open file object: HDF5 would open the sources of a
        virtual dataset with the driver of that file, and crash.
    plan : MergePlan
    extent : {"sample", "full"}
        "full" compares every row. "sample" compares a few of each dataset and source: the first, the last,
        and one that a seeded generator chooses; of a chunk that was copied as it is, all rows. Of more than
        32 segments of workers, whose commits have hashes of all rows, the first, the last and 30 chosen ones
        are compared. So are those of more than 32 sources of a virtual file, where HDF5 takes 9 ms to find
        the rows of one among 4,000; of many datasets of such a file at least three sources each. The
        mappings of a virtual file are compared with the plan one by one.
    progress : callable, optional
        Called as ``progress(compared_bytes, all_bytes)``, where parts that are sampled count as a whole.

    Returns
    -------
    dict
        The number of rows of each dataset that were compared.

    Raises
    ------
    CorruptDataError
        Rows differ, or cannot be read.
    """
    with h5py.File(open_id(path)) as file:
        full = extent == "full"
        wanted = _all_pairs(plan) if full else _sampled_pairs(plan)
        total = sum(part.rows * one.row_bytes for pairs in wanted.values() for one, part in pairs)
        count = Count(progress, total)
        compared: dict[str, int] = {}
        for datasets in _open_together(plan):
            results = {one.name: _Result(file, one, plan, full=full, count=count) for one in datasets}
            for number in sorted(wanted):
                pairs = [pair for pair in wanted[number] if pair[0].name in results]
                if not pairs:
                    continue
                path = plan.sources[number].path
                source = open_id(path)
                try:
                    for one, part in pairs:
                        with reading(path, one.name):
                            results[one.name].compare(source, part)
                finally:
                    h5py.File(source).close()
            compared |= {name: result.rows for name, result in results.items()}
        return compared


_Pairs = dict[int, list[tuple[DatasetPlan, Part]]]


def _all_pairs(plan: MergePlan) -> _Pairs:
    """Return the datasets with rows of each source."""
    pairs: _Pairs = {}
    for one in plan.datasets:
        for part in one.parts:
            pairs.setdefault(part.source, []).append((one, part))
    return pairs


def _sampled_pairs(plan: MergePlan) -> _Pairs:
    pairs = _all_pairs(plan)
    chosen = _sample_of(plan, sorted(pairs))
    if plan.mode != "virtual" or len(chosen) == len(pairs):
        return {number: pairs[number] for number in chosen}
    # The mappings of all sources are compared (`_check_mappings`), so of many datasets each needs few.
    with_rows = [one for one in plan.datasets if one.parts]
    most = max(_LEAST_VIRTUAL_SOURCES, _VIRTUAL_SAMPLES // len(with_rows))
    sampled: _Pairs = {}
    for index, one in enumerate(with_rows):
        parts = {part.source: part for part in one.parts}
        own = [number for number in chosen if number in parts]
        if not one.keyed and len(own) > most:
            inner = own[1:-1]
            own = [own[0], own[-1], *(inner[(index + i) % len(inner)] for i in range(most - 2))]
        for number in own:
            sampled.setdefault(number, []).append((one, parts[number]))
    return sampled


def _open_together(plan: MergePlan) -> list[list[DatasetPlan]]:
    """Return groups of datasets that are open at the same time.

    HDF5 keeps all mappings of an open virtual dataset in memory, some 3 KB each.
    """
    with_rows = [one for one in plan.datasets if one.parts]
    if plan.mode != "virtual":
        return [with_rows] if with_rows else []
    most = max(1, _OPEN_MAPPINGS // max((len(one.parts) for one in with_rows), default=1))
    return [with_rows[first : first + most] for first in range(0, len(with_rows), most)]


def _sample_of(plan: MergePlan, sources: list[int]) -> list[int]:
    # A commit has the hash of its rows, which the merge compares always.
    known = [number for number in sources if plan.mode == "virtual" or plan.sources[number].rank is not None]
    if len(known) <= _SAMPLED_SOURCES:
        return sources
    chosen = np.random.default_rng(_SEED).choice(len(known) - 2, _SAMPLED_SOURCES - 2, replace=False) + 1
    left_out = set(known[1:-1]) - {known[i] for i in chosen.tolist()}
    return [number for number in sources if number not in left_out]


class _Result:
    """A dataset of the merged file; `rows` is the number of rows that were compared."""

    def __init__(
        self, file: h5py.File, one: DatasetPlan, plan: MergePlan, *, full: bool, count: Count
    ) -> None:
        self._file, self._plan, self._full = file, plan, full
        self._one, self._count = one, count
        self._dataset = self._open()
        # A row without values has none to map: HDF5 stores an empty selection for it.
        if one.strategy == "virtual" and not one.keyed and 0 not in one.row_shape:
            self._check_mappings()
        self._layout = read_layout(self._dataset) if one.strategy in ("chunks", "chunks and rows") else None
        self._decoded: dict[Layout, int] = {}
        self._places = plan.key.places() if one.keyed and plan.key is not None else None
        self._random = np.random.default_rng(_SEED)
        self._sources = 0
        self.rows = 0

    def compare(self, source: h5py.h5f.FileID, part: Part) -> None:
        """Compare rows of one source."""
        path = self._plan.sources[part.source].path
        theirs = h5py.h5d.open(source, self._one.name.encode())
        pairs = self._all(theirs, part) if self._full else self._sample(theirs, part)
        for row, rows in pairs:
            converted = in_stored_order(rows, part.dtype) if part.dtype.hasobject else rows
            if part.dtype != self._one.dtype:
                converted = converted.astype(self._one.dtype.base)
            if content_crc(converted) != content_crc(self._ours(part, row, len(rows))):
                raise self._differs(path, row, len(rows))
            self.rows += len(rows)
            if self._full:
                self._count.add(len(rows) * self._one.row_bytes)
        if not self._full:
            self._count.add(part.rows * self._one.row_bytes)
        self._sources += 1
        if self._one.strategy == "virtual" and self._sources % _OPEN_SOURCES == 0:
            del self._dataset
            self._dataset = self._open()

    def _check_mappings(self) -> None:
        """Raise a `CorruptDataError` unless every part is mapped to all rows of its source."""
        one, plan = self._one, self._plan
        found = read_virtual_layout(self._file.id, plan.output, f"/{one.name}", self._dataset.id)
        low = np.zeros((len(one.parts), 1 + len(one.row_shape)), np.int64)
        high = np.tile(np.array([0, *one.row_shape], np.int64), (len(one.parts), 1))
        rows = np.array([part.rows for part in one.parts], np.int64)
        low[:, 0] = [part.first_row for part in one.parts]
        high[:, 0] = low[:, 0] + rows
        in_source = high.copy()
        in_source[:, 0] = rows
        files = [os.fsencode(plan.relative_paths[part.source]) for part in one.parts]
        same = (
            np.array_equal(found.low, low)
            and np.array_equal(found.high, high)
            and all(name == encode_name(one.name) for name in found.datasets)
            and [found.files[number] for number in found.numbers.tolist()] == files
            and _maps_all(found, in_source)
        )
        if not same:
            message = (
                f"the merged file {plan.output!r} would have other mappings of {one.name!r} than planned"
            )
            raise CorruptDataError(
                f"{message}, and was not kept: check disk and memory, merge again", path=plan.output
            )

    def _open(self) -> h5py.Dataset:
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        if self._one.strategy == "virtual":
            folder = os.path.dirname(os.path.abspath(self._plan.output))
            access.set_virtual_prefix(os.fsencode(folder))
        return h5py.Dataset(h5py.h5d.open(self._file.id, self._one.name.encode(), access))

    def _all(self, theirs: h5py.h5d.DatasetID, part: Part) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        row, dataset = 0, h5py.Dataset(theirs)
        require_filters(dataset)
        for rows in blocks(dataset, 0, part.rows):
            yield row, rows
            row += len(rows)

    def _sample(self, theirs: h5py.h5d.DatasetID, part: Part) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
        chosen = {0, part.rows - 1, int(self._random.integers(part.rows))}
        step = part.layout.chunks[0] if part.layout.chunks else 1
        bands = {row // step: row for row in sorted(chosen)}  # one row of each row of chunks
        dataset = h5py.Dataset(theirs)
        by_chunk = self._layout is not None and self._copied(self._layout, part)
        if by_chunk:
            count = self._decoded[part.layout] = self._decoded.get(part.layout, 0) + 1
            by_chunk = count > _DECODED_SOURCES or not _is_decodable(dataset)
        else:
            require_filters(dataset)
        for band, row in bands.items():
            start, stop = band * step, min(part.rows, (band + 1) * step)
            if by_chunk and self._same_chunks(theirs, part, start):
                self.rows += stop - start
            else:
                yield row, dataset[row : row + 1]

    def _copied(self, layout: Layout, part: Part) -> bool:
        chunks = layout.chunks
        return (
            chunks is not None
            and part.first_row % chunks[0] == 0
            and layout.obstacle_to_chunk_copy(part.layout) is None
        )

    def _same_chunks(self, theirs: h5py.h5d.DatasetID, part: Part, start: int) -> bool:
        """Return whether a row of chunks is stored with the same bytes; new compression may change them."""
        chunks = part.layout.chunks
        assert chunks is not None
        columns = (range(0, size, one) for size, one in zip(self._one.row_shape, chunks[1:], strict=True))
        for column in itertools.product(*columns):
            try:
                mine = self._dataset.id.read_direct_chunk((part.first_row + start, *column))
                other = theirs.read_direct_chunk((start, *column))
            except Exception as error:
                if not is_of_hdf5(error):
                    raise
                # A chunk that was never written. h5py raises MemoryError if no chunk of the dataset was.
                return False
            if mine != other:
                return False
        return True

    def _ours(self, part: Part, row: int, count: int) -> np.ndarray[Any, Any]:
        if self._places is None or self._plan.key is None:
            start = part.first_row + row
            rows: np.ndarray[Any, Any] = self._dataset[start : start + count]
        else:
            first = int(self._plan.key.starts[part.source]) + row
            rows = self._rows_at(self._places[first : first + count])
        if self._one.dtype.hasobject:
            in_stored_order(rows, self._one.dtype)
        return rows

    def _rows_at(self, places: Sequence[int] | np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Read rows that are not adjacent, at once if few others are between them."""
        places = np.asarray(places)
        rows: np.ndarray[Any, Any]
        low, high = int(places.min()), int(places.max()) + 1
        row_bytes = max(1, self._one.dtype.itemsize * int(np.prod(self._one.row_shape, dtype=np.int64)))
        if (high - low) * row_bytes <= _SPAN_BYTES:
            rows = self._dataset[low:high][places - low]
            return rows
        rows = np.concatenate([self._dataset[place : place + 1] for place in places.tolist()])
        return rows

    def _differs(self, path: str, row: int, count: int) -> CorruptDataError:
        where = f"row {row}" if count == 1 else f"rows {row} to {row + count - 1}"
        message = (
            f"the merged file {self._plan.output!r} would have other values than {where} of "
            f"{self._one.name!r} in {path!r}, and was not kept"
        )
        advice = "check disk and memory, and that no process writes the source; then merge again"
        return CorruptDataError(f"{message}: {advice}", path=path)


def _maps_all(found: VirtualLayout, in_source: np.ndarray[Any, Any]) -> bool:
    """Return whether each mapping has all of its source; HDF5 may store such a selection without a box."""
    boxed = found.source_dimensions >= 0
    return bool(
        found.is_box.all()
        and found.is_source_box.all()
        and not found.source_low[boxed].any()
        and np.array_equal(found.source_high[boxed], in_source[boxed][:, : found.source_high.shape[1]])
    )


def _is_decodable(dataset: h5py.Dataset) -> bool:
    """Return whether the filters of a dataset are installed; copies of its chunks need none."""
    try:
        require_filters(dataset)
    except MissingExtraError:
        return False
    return True
