"""`merge`: many files become one, whole and checked, or nothing happens."""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError, ExistsError, PlanError
from shardkeep.files.pending import TemporaryFile
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.hdf5.dataset_layout import Layout, create_dataset, read_layout
from shardkeep.hdf5.merge_plan import DatasetPlan, MergePlan, Mode, Part, SourcePlan, plan_merge
from shardkeep.hdf5.provenance import write_provenance
from shardkeep.hdf5.receipts import write_receipts
from shardkeep.hdf5.rows import as_bytes, content_crc
from shardkeep.hdf5.segment import H5_VERSIONS
from shardkeep.hdf5.source import open_source
from shardkeep.hdf5.source_rows import blocks, not_as_committed, reading

__all__ = ["MergeReport", "merge"]

Incomplete = Literal["warn", "refuse", "allow"]


@dataclass(frozen=True)
class MergeReport:
    """What a merge did.

    Attributes
    ----------
    output : str
    mode : str
    rows : dict
        Rows of each dataset in the result.
    sources : tuple of str
        The merged files, in the order of their rows.
    ways : dict
        How each dataset was merged, and why so.
    dropped_attributes : dict
        Attributes of each dataset that differ between the sources, or refer to objects.
    bytes : int
        Size of the result.
    seconds : float
    findings : tuple of str
        What of the run seems to be missing, or to be there twice: ranks of the newest commit's
        world without a commit or behind its step, commits of an earlier world that overlap the
        newest one, a list that does not begin with a rank's first commit. Empty if all is there.
    """

    output: str
    mode: str
    rows: dict[str, int]
    sources: tuple[str, ...]
    ways: dict[str, str]
    dropped_attributes: dict[str, tuple[str, ...]]
    bytes: int
    seconds: float
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


def merge(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    exists: Exists = "fail",
    incomplete: Incomplete = "warn",
    progress: Callable[[int, int], None] | None = None,
) -> MergeReport:
    """Merge the worker files of a run, or any HDF5 files, into one file.

    Parameters
    ----------
    sources : str, os.PathLike or iterable of them
        A run folder (every commit that stands, by rank, then in the order of the commits), or a
        list of HDF5 files (in its order), which need not be worker files.
    output : str or os.PathLike
        Appears whole and synced, or not at all.
    mode : {"auto", "copy", "virtual"}
        "copy" writes every row into the result: compressed chunks go as they are where that is
        provably safe, and are made anew where not. "virtual" writes a small file that points to
        the sources by relative paths; it is only as whole as they stay. Rows of segments are read
        once and compared with their hash, plain files have none. "auto" is "copy".
    exists : {"fail", "replace"}
        What to do if there is such an output.
    incomplete : {"warn", "refuse", "allow"}
        What to do if commits of a run seem to be missing, or to be there twice: a `RuntimeWarning`
        before anything is written, a `CorruptDataError`, or nothing. Either way
        ``report.findings`` has them. A run that is still going on looks like that.
    progress : callable, optional
        Called with the number of sources done and of all sources.

    Returns
    -------
    MergeReport

    Raises
    ------
    NotFoundError, FormatError, CorruptDataError, TruncatedFileError, LockError
        A source is missing, of another kind, unreadable, damaged (its rows do not have the hash
        of their commit, in every mode), cut off, or being written. Never are fill values put for
        it. Segments of one rank leave a gap or are out of order, also in a list.
    SchemaError
        Dtype (byte order, enum members), row shape or the set of datasets differ; says who has
        what. A worker that never appended to a dataset has no rows of it, which is no mismatch.
    ExistsError, DurabilityError
        The output is there, or cannot be written. Nothing is left of it.

    Notes
    -----
    The result also has the tables ``_provenance`` (`shardkeep.hdf5.provenance`) and ``_receipts``
    (the newest receipt of each Loader, as JSON). Before it appears it is read back and compared
    with the sources: rows, and a CRC-32 of the rows or raw chunks of every source. Attributes of
    datasets are kept where all sources agree. One source is open at a time, so ``ulimit -n`` does
    not matter. Workers may go on writing: what they committed before the call is merged.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.hdf5.worker_file import WorkerFile
    >>> from shardkeep.world import World
    >>> run = tempfile.mkdtemp()
    >>> for rank in range(2):
    ...     with WorkerFile(run, World(rank=rank, size=2)) as out:
    ...         out.append("loss", [rank + 0.5])
    ...         out.commit(step=1)
    >>> report = merge(run, os.path.join(run, "all.h5"))
    >>> report.rows
    {'loss': 2}
    >>> with h5py.File(report.output) as file:
    ...     file["loss"][:].tolist()
    [0.5, 1.5]
    """
    start = time.monotonic()
    target = os.fspath(output)
    if exists == "fail" and os.path.lexists(target):
        message = f'{target!r} exists: choose another name, or allow exists="replace"'
        raise ExistsError(message, path=target)
    if incomplete not in ("warn", "refuse", "allow"):
        raise PlanError(f'incomplete={incomplete!r} means nothing here: use "warn", "refuse" or "allow"')
    # A virtual result is made without reading rows, so they are read while the plan has them open.
    plan = plan_merge(sources, target, mode=mode, check_rows=mode == "virtual")
    if plan.findings and incomplete != "allow":
        message = "; ".join(plan.findings)
        if incomplete == "refuse":
            raise CorruptDataError(f'{message}: bring it in order, or allow incomplete="warn"')
        warnings.warn(f"what is merged is not a whole run: {message}", RuntimeWarning, stacklevel=2)
    with publish_raw(target, exists=exists) as temporary:
        temporary.deferred = True
        with _hdf5_errors(temporary, target):
            with h5py.File(temporary, "w", libver=H5_VERSIONS) as file:
                found = _fill(file, plan, temporary, progress)
                write_provenance(file, plan)
                write_receipts(file, plan.receipts)
            _raise_failure(temporary)
            with h5py.File(temporary, "r") as file:
                _verify(file, plan, found)
    return MergeReport(
        output=target,
        mode=plan.mode,
        rows={one.name: one.rows for one in plan.datasets if one.way != "constant"},
        sources=tuple(source.path for source in plan.sources),
        ways={one.name: f"{one.way}: {one.reason}" for one in plan.datasets},
        dropped_attributes={
            one.name: one.dropped_attributes for one in plan.datasets if one.dropped_attributes
        },
        bytes=os.path.getsize(target),
        seconds=time.monotonic() - start,
        findings=plan.findings,
    )


# -- writing --------------------------------------------------------------------------------------

# The hash of each part as it was read from its source: of its raw chunks, and of its other rows.
_Found = dict[tuple[str, int], tuple[int, int, int]]


class _Sink:
    """A dataset of the result while rows arrive; whole chunks are written as they fill."""

    def __init__(self, file: h5py.File, plan: DatasetPlan) -> None:
        self.plan = plan
        self.dataset = create_dataset(file, plan.name, plan.layout, (plan.rows, *plan.row_shape), plan.dtype)
        # As HDF5 made it: some filters change their parameters to suit the dataset.
        self._layout = read_layout(self.dataset)
        chunks = plan.layout.chunks
        self.chunk_rows = chunks[0] if chunks is not None else max(1, plan.rows)
        self._direct = (
            chunks is not None
            and chunks[1:] == plan.row_shape
            and not plan.layout.filters
            and not plan.dtype.hasobject
        )
        self._waiting: np.ndarray[Any, Any] | None = None
        self._fill = 0
        self.row = 0

    @property
    def aligned(self) -> bool:
        return self._fill == 0 and self.row % self.chunk_rows == 0

    def takes_chunks_of(self, layout: Layout) -> bool:
        return bool(self._layout.filters) and self._layout.obstacle_to_chunk_copy(layout) is None

    def add_rows(self, rows: np.ndarray[Any, Any]) -> None:
        start = 0
        while start < len(rows):
            if self._fill == 0 and len(rows) - start >= self.chunk_rows:
                self._write(rows[start : start + self.chunk_rows])
                start += self.chunk_rows
                continue
            if self._waiting is None:
                self._waiting = np.empty((self.chunk_rows, *self.plan.row_shape), self.plan.dtype)
            count = min(self.chunk_rows - self._fill, len(rows) - start)
            self._waiting[self._fill : self._fill + count] = rows[start : start + count]
            self._fill += count
            start += count
            if self._fill == self.chunk_rows:
                self._fill = 0
                self._write(self._waiting)

    def add_chunk(self, offset: tuple[int, ...], mask: int, data: bytes) -> None:
        self.dataset.id.write_direct_chunk((self.row + offset[0], *offset[1:]), data, mask)

    def skip(self, rows: int) -> None:
        self.row += rows

    def finish(self) -> None:
        if self._fill and self._waiting is not None:
            self.dataset[self.row : self.row + self._fill] = self._waiting[: self._fill]
            self.row += self._fill
        self._waiting = None

    def _write(self, rows: np.ndarray[Any, Any]) -> None:
        if self._direct:
            self.dataset.id.write_direct_chunk((self.row, *(0 for _ in self.plan.row_shape)), as_bytes(rows))
        else:
            self.dataset[self.row : self.row + len(rows)] = rows
        self.row += len(rows)


def _fill(
    file: h5py.File,
    plan: MergePlan,
    temporary: TemporaryFile,
    progress: Callable[[int, int], None] | None,
) -> _Found:
    found: _Found = {}
    sinks: list[_Sink] = []
    by_source: dict[int, list[tuple[_Sink, Part]]] = {}
    for one in plan.datasets:
        if one.way == "constant":
            dataset = file.create_dataset(one.name, data=one.constant, dtype=_constant_dtype(one))
        elif one.way == "virtual":
            dataset = _point_to_sources(file, one, plan)
        else:
            sink = _Sink(file, one)
            sinks.append(sink)
            dataset = sink.dataset
            for part in one.parts:
                by_source.setdefault(part.source, []).append((sink, part))
        one.attributes.write(dataset)
    for number, source_plan in enumerate(plan.sources):
        if number in by_source:
            with open_source(source_plan.path) as source:
                for sink, part in by_source[number]:
                    dataset = source.dataset(sink.plan.name)
                    with reading(source_plan.path, sink.plan.name):
                        found[sink.plan.name, number] = _copy(dataset, sink, part, source_plan)
                    _raise_failure(temporary)
        if progress is not None:
            progress(number + 1, len(plan.sources))
    for sink in sinks:
        sink.finish()
    return found


def _copy(dataset: h5py.Dataset, sink: _Sink, part: Part, source: SourcePlan) -> tuple[int, int, int]:
    if tuple(dataset.shape) != (part.rows, *sink.plan.row_shape):
        message = f"{source.path!r} changed while it was merged: wait for its writer and merge again"
        raise CorruptDataError(message, path=source.path)
    done = crc_chunks = 0
    if sink.aligned and sink.takes_chunks_of(part.layout):
        last = part.first_row + part.rows == sink.plan.rows
        done = part.rows if last else part.rows // sink.chunk_rows * sink.chunk_rows
        for offset, mask, data in _raw_chunks(dataset, done):
            sink.add_chunk(offset, mask, data)
            crc_chunks = _chunk_crc(offset, mask, data, crc_chunks)
        sink.skip(done)
    crc_rows = 0
    for rows in blocks(dataset, done, part.rows):
        sink.add_rows(rows)
        crc_rows = content_crc(rows, crc_rows)
    if part.crc32c is not None and done == 0 and f"{crc_rows:08x}" != part.crc32c:
        raise not_as_committed(source.path, sink.plan.name)
    return done, crc_chunks, crc_rows


def _raw_chunks(dataset: h5py.Dataset, rows: int) -> Iterator[tuple[tuple[int, ...], int, bytes]]:
    """Give offset, filter mask and bytes of the chunks that start in the first `rows`."""
    offsets = _all_offsets(dataset)
    for row in sorted(row for row in offsets if row < rows):
        for offset in sorted(offsets[row]):
            mask, data = dataset.id.read_direct_chunk(offset)
            yield offset, mask, data


def _chunk_crc(offset: tuple[int, ...], mask: int, data: bytes, crc: int) -> int:
    return crc32c(repr((offset, mask, crc32c(data))).encode(), crc)


def _point_to_sources(file: h5py.File, one: DatasetPlan, plan: MergePlan) -> h5py.Dataset:
    folder = os.path.dirname(os.path.abspath(plan.output))
    layout = h5py.VirtualLayout((one.rows, *one.row_shape), one.dtype)
    for part in one.parts:
        # HDF5 puts block numbers in the place of "%b", so a "%" in a name is doubled.
        path = os.path.relpath(plan.sources[part.source].path, folder).replace("%", "%%")
        shape = (part.rows, *one.row_shape)
        layout[part.first_row : part.first_row + part.rows] = h5py.VirtualSource(
            path, one.name.replace("%", "%%"), shape=shape, dtype=one.dtype
        )
    return file.create_virtual_dataset(one.name, layout)


def _constant_dtype(one: DatasetPlan) -> np.dtype[Any] | None:
    return None if isinstance(one.constant, h5py.Empty) else one.dtype


# -- checking -------------------------------------------------------------------------------------


def _verify(file: h5py.File, plan: MergePlan, found: _Found) -> None:
    for one in plan.datasets:
        if one.way == "constant":
            continue
        dataset = file[one.name]
        if dataset.shape != (one.rows, *one.row_shape):
            raise _differs(plan, f"has shape {dataset.shape} of {one.name!r}")
        if one.way == "virtual":
            if len(dataset.virtual_sources()) != len(one.parts):
                raise _differs(plan, f"points to too few files in {one.name!r}")
            continue
        offsets = _all_offsets(dataset) if one.way != "rows" else {}
        for part in one.parts:
            _verify_part(dataset, one, part, offsets, found[one.name, part.source], plan)


def _verify_part(
    dataset: h5py.Dataset,
    one: DatasetPlan,
    part: Part,
    offsets: dict[int, list[tuple[int, ...]]],
    found: tuple[int, int, int],
    plan: MergePlan,
) -> None:
    copied, crc_chunks, crc_rows = found
    source = plan.sources[part.source].path
    crc = 0
    if copied:
        for row in range(part.first_row, part.first_row + copied, dataset.chunks[0]):
            for offset in sorted(offsets.get(row, ())):
                mask, data = dataset.id.read_direct_chunk(offset)
                crc = _chunk_crc((offset[0] - part.first_row, *offset[1:]), mask, data, crc)
    if crc != crc_chunks:
        raise _differs(plan, f"has other chunks of {one.name!r} than {source!r}")
    crc = 0
    for rows in blocks(dataset, part.first_row + copied, part.first_row + part.rows):
        crc = content_crc(rows, crc)
    if crc != crc_rows:
        raise _differs(plan, f"has other rows of {one.name!r} than {source!r}")


def _all_offsets(dataset: h5py.Dataset) -> dict[int, list[tuple[int, ...]]]:
    offsets: dict[int, list[tuple[int, ...]]] = {}

    def visit(info: Any) -> None:
        offsets.setdefault(info.chunk_offset[0], []).append(tuple(info.chunk_offset))

    dataset.id.chunk_iter(visit)
    return offsets


def _differs(plan: MergePlan, what: str) -> CorruptDataError:
    message = f"the merged file {plan.output!r} {what} and was not kept: check disk and memory, merge again"
    return CorruptDataError(message, path=plan.output)


def _raise_failure(temporary: TemporaryFile) -> None:
    if temporary.failure is not None:
        raise temporary.failure


@contextlib.contextmanager
def _hdf5_errors(temporary: TemporaryFile, target: str) -> Iterator[None]:
    """Say what failed first: a full disk makes HDF5 stumble later over what it did not write."""
    try:
        yield
    except (OSError, RuntimeError):
        _raise_failure(temporary)
        raise
