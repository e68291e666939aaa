"""Conversion of folders of images, tables, arrays and tar files to TFRecord shards."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from shardkeep import _core
from shardkeep._paths_in_messages import shown
from shardkeep._summary import summary
from shardkeep.errors import NotFoundError, PlanError, ShardkeepError
from shardkeep.files.file_set import FileSet
from shardkeep.files.paths import PathsLike
from shardkeep.files.publish import Exists
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.files.remote.pending import sizes_bytes
from shardkeep.files.threads.groups import size_runs
from shardkeep.jobs.division.assignment import BATCH_BYTES, warn_of_odd_shards
from shardkeep.jobs.division.divide import ShardFile
from shardkeep.jobs.pack_sources.open import Arrays, Kind, open_source
from shardkeep.jobs.pack_sources.source import PackSource
from shardkeep.plan import Permutation
from shardkeep.progress import Parts, Progress
from shardkeep.quantities import listed
from shardkeep.tfrecord import ShardWriter, encode_example
from shardkeep.tfrecord.format.compression import WrittenCompression
from shardkeep.tfrecord.index.index import frame_starts
from shardkeep.tfrecord.shard_names import early_name
from shardkeep.tfrecord.shard_sinks import OpenSink, frame_bytes

__all__ = ["PackReport", "pack"]

OnBad = Literal["raise", "skip"]

_SHARD_BYTES = 128 << 20
_LISTED = 20
_NAMED = 5
_TICK_RECORDS = 64
_STREAM = 0x7061636B  # a permutation that differs from those of loaders with the same seed


@dataclass(frozen=True)
class PackReport:
    """Report of `pack`.

    Attributes
    ----------
    kind : str
        Kind of the source.
    sources : tuple of str
        Files or folder of the source; empty for arrays in memory.
    outputs : tuple of ShardFile
        Shards, in order.
    records, bytes : int
        Number of records and size of all outputs.
    features : dict of str to str
        Name to "int64", "float32" or "bytes".
    labels : dict of str to int, or None
        Number of each label, if the source has names for them.
    skipped : int
        Number of bad records that were left out.
    bad : tuple of str
        Messages of the first 20 of them.
    notes : tuple of str
        Remarks on values that are stored with less precision than they had, and on files that were left out.
    left_out : int
        Number of files at the top of a folder of images that are not images.
    shuffle : int or None
        Seed of the shuffle.
    seconds : float
        Duration.
    """

    kind: str
    sources: tuple[str, ...]
    outputs: tuple[ShardFile, ...]
    records: int
    bytes: int
    features: dict[str, str]
    labels: dict[str, int] | None
    skipped: int
    bad: tuple[str, ...]
    notes: tuple[str, ...]
    shuffle: int | None
    seconds: float
    left_out: int = 0

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return asdict(self)


@accepts_urls("source", folders=True)
def pack(
    source: PathsLike | Arrays,
    pattern: str | os.PathLike[str],
    *,
    kind: Kind = "auto",
    shards: int | None = None,
    shard_bytes: int | None = None,
    shard_records: int | None = None,
    shuffle: int | None = None,
    labels: Mapping[str, int] | str | os.PathLike[str] | None = None,
    labels_path: str | os.PathLike[str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    on_bad: OnBad = "raise",
    compression: WrittenCompression | None = None,
    exists: Exists = "fail",
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> PackReport:
    r"""Write the records of a source as Examples into shards, which appear together or not at all.

    Parameters
    ----------
    source : path, pattern, iterable of them, array, or mapping of str to array
        One of these, identified by its content:

        - a folder of PNG, JPEG and WebP files, with a sub-folder for each label or none: features
          "image_raw" (the bytes of the file), "height", "width", "depth" (channels), "filename" (relative
          to the folder) and, with sub-folders, "label". Other files at the top of the folder, such as a
          README, are left out and counted; names that begin with a dot are ignored;
        - CSV files with a header: one feature for each column, with an inferred type (see `CsvTable`);
        - Parquet or Arrow files (needs pyarrow): one feature for each column;
        - a .npy or .npz file, or arrays: row i of each array becomes a feature of record i;
        - WebDataset tar files: the members with one key become a record (see `WebDataset`).
    pattern : str or os.PathLike
        Pattern of the names: ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    kind : str
        Kind of the source, if the content does not identify it or should not decide. By default "auto".
    shards, shard_bytes, shard_records : int, optional
        As for `shardkeep.tfrecord.ShardWriter`; ``shard_bytes`` of 128 MiB if none is given. With `shards`
        records go to the shards in turn.
    shuffle : int, optional
        Seed of a random order of the records. Use it if the shards are read without shuffling: a folder
        packed label by label is read label by label. Needs the size of the shards on disk once more during
        the work, and 8 bytes of memory for each record.
    labels : mapping of str to int, or path, optional
        Number of each label, instead of the alphabetical order, for a second data set that must agree with
        the first. A path is that of a file that `labels_path` wrote.
    labels_path : path, optional
        File for the map of labels, as JSON; it appears together with the shards.
    dtypes : mapping of str to str, optional
        For CSV: column to "int64", "float32" or "bytes", instead of the inferred type.
    on_bad : {"raise", "skip"}
        What to do with a bad record, such as a truncated image or a row with too few cells. Skipped records
        are counted and named in the report. A source whose rest cannot be read is always an error.
    compression, exists
        As for `shardkeep.tfrecord.ShardWriter`.
    executor : concurrent.futures.Executor, optional
        Its workers read and check the files of a folder of images; see `shardkeep.engine`. Other sources are
        read, and all shards are written, by this process.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)``. The total is the size of the source, of which the
        scan of CSV files, the reading, the shuffle and the sync have shares.

    Returns
    -------
    PackReport
        Shards, features, labels and skipped records.

    Warns
    -----
    RuntimeWarning
        Shards have no record, or a record is larger than `shard_bytes`.

    Raises
    ------
    FormatError, CorruptDataError, TruncatedFileError
        The kind of the source is unknown, or the source or a record is damaged; the message names the record.
    SchemaError
        The source has values that an Example cannot hold, an unknown label, or files with different columns.
    NotFoundError
        The source does not exist or has no record.
    MissingExtraError
        pyarrow is needed for Parquet and Arrow, and is not installed.
    ExistsError, LockTimeoutError, DurabilityError, PlanError
        As for `shardkeep.tfrecord.ShardWriter`. After an error none of the shards exists.
    EngineError
        The executor did not finish a task.

    Notes
    -----
    Equal sources, options and seeds yield equal files on every machine.

    Examples
    --------
    >>> import tempfile
    >>> from shardkeep.tfrecord import Reader, decode_example
    >>> folder = tempfile.mkdtemp()
    >>> with open(os.path.join(folder, "t.csv"), "w") as file:
    ...     _ = file.write("x,zip\n1.5,01234\n2,98765\n")
    >>> report = pack(os.path.join(folder, "t.csv"), os.path.join(folder, "t-{shard}"), shards=1)
    >>> report.records, report.features
    (2, {'x': 'float32', 'zip': 'bytes'})
    >>> decode_example(Reader(report.outputs[0].path)[0])
    {'x': array([1.5], dtype=float32), 'zip': [b'01234']}
    """
    begin = time.perf_counter()
    if on_bad not in get_args(OnBad):
        raise PlanError(f'on_bad must be "raise" or "skip", not {on_bad!r}')
    if shards is None and shard_bytes is None and shard_records is None:
        shard_bytes = _SHARD_BYTES
    steps = _Steps(progress, shuffled=shuffle is not None)
    given = open_source(source, kind, labels, dtypes, steps.scan, executor)
    if labels_path is not None and given.labels is None:
        raise PlanError("labels_path= needs a source with labels: a folder with sub-folders of images")
    writer = ShardWriter(
        pattern,
        shards=shards,
        shard_bytes=shard_bytes,
        shard_records=shard_records,
        compression=compression,
        exists=exists,
    )
    with writer:
        skipped = _Skipped(on_bad)
        if labels_path is not None:
            content = json.dumps(given.labels, indent=1, ensure_ascii=False) + "\n"
            writer.add_file(labels_path, content.encode())
        records = _encoded(given, skipped, steps)
        if shuffle is None:
            for record in records:
                writer.write(record)
        else:
            _write_shuffled(records, writer, shuffle, lambda: steps.begin("shuffle", given.total_bytes))
        if not sum(writer.records):
            raise NotFoundError(
                f"{_name(given)}: has no record" + (f"; {skipped.messages[0]}" if skipped.messages else "")
            )
        warn_of_odd_shards(
            writer.pattern,
            records=sum(writer.records),
            shards=len(writer.records),
            shard_bytes=shard_bytes,
            largest_bytes=steps.largest_bytes,
        )
        writer.close(progress=steps.begin("sync to disk", given.total_bytes))
    outputs = tuple(
        ShardFile(shown(path), count, size_bytes)
        for path, count, size_bytes in zip(
            writer.paths, writer.records, sizes_bytes(writer.paths), strict=True
        )
    )
    return PackReport(
        kind=given.kind,
        sources=given.paths,
        outputs=outputs,
        records=sum(writer.records),
        bytes=sum(one.bytes for one in outputs),
        features=given.features,
        labels=given.labels,
        skipped=skipped.count,
        bad=tuple(skipped.messages),
        notes=(*given.notes, *_left_out(given)),
        left_out=len(given.left_out),
        shuffle=shuffle,
        seconds=time.perf_counter() - begin,
    )


def _left_out(source: PackSource) -> list[str]:
    if not source.left_out:
        return []
    names, count = source.left_out[:_NAMED], len(source.left_out)
    plural = "file that is not an image was" if count == 1 else "files that are not images were"
    return [f"{count:,} {plural} left out at the top of {source.paths[0]}: {listed(names, count)}"]


def _name(source: PackSource) -> str:
    return source.paths[0] if source.paths else "the arrays"


# -- writing -------------------------------------------------------------------------------------------


class _Skipped:
    """Number of the bad records, and the messages of the first ones."""

    def __init__(self, on_bad: OnBad) -> None:
        self.count = 0
        self.messages: list[str] = []
        self._on_bad = on_bad

    def add(self, error: ShardkeepError) -> None:
        if self._on_bad == "raise":
            raise error
        self.count += 1
        if len(self.messages) < _LISTED:
            self.messages.append(str(error))


class _Steps:
    """Progress over the parts of a run, and the size of the largest record."""

    def __init__(self, progress: Progress | None, *, shuffled: bool) -> None:
        self._progress, self._shuffled = progress, shuffled
        self._parts: Parts | None = None
        self._scan: Progress | None = None
        self.largest_bytes = 0

    def scan(self, done_bytes: int, total_bytes: int) -> None:
        """Report the scan of a source that is read twice, before any other part."""
        if self._scan is None:
            weights = {"scan": 1, "read": 2, "shuffle": 2 * self._shuffled, "sync to disk": 1}
            self._parts = Parts(self._progress, total_bytes, weights)
            self._scan = self._parts.begin("scan")
        self._scan(done_bytes, total_bytes)

    def begin(self, name: str, total_bytes: int) -> Progress:
        if self._parts is None:
            weights = {"read": 4, "shuffle": 2 * self._shuffled, "sync to disk": 1}
            self._parts = Parts(self._progress, total_bytes, weights)
        return self._parts.begin(name)


def _encoded(source: PackSource, skipped: _Skipped, steps: _Steps) -> Iterator[bytes]:
    report = steps.begin("read", source.total_bytes)
    for number, item in enumerate(source):
        if isinstance(item, ShardkeepError):
            skipped.add(item)
        else:
            record = encode_example(item)
            steps.largest_bytes = max(steps.largest_bytes, frame_bytes(record))
            yield record
        if number % _TICK_RECORDS == 0:
            report(source.done_bytes, source.total_bytes)
    source.done_bytes = source.total_bytes
    report(1, 1)


def _write_shuffled(
    records: Iterator[bytes], writer: ShardWriter, seed: int, begin: Callable[[], Progress]
) -> None:
    """Write all records to a temporary file, and from there in their new order."""
    with contextlib.ExitStack() as stack:
        files = FileSet()
        stack.callback(files.undo)
        name = early_name(writer.pattern, 0) + ".unshuffled"
        temporary = files.temporary(files.add(name))
        sink = OpenSink(temporary, name, compression=None)
        stack.callback(sink.drop)
        for record in records:
            sink.write(record)
        sink.finish()
        (starts,) = frame_starts([temporary])
        sizes = starts[1:].astype(np.int64) - starts[:-1].astype(np.int64)
        file = _core.RecordFile(temporary, starts)
        order = Permutation(len(sizes), seed, stream=_STREAM)
        done_bytes, report = 0, begin()
        for first in range(0, len(sizes), 1 << 16):
            numbers = order.forward(np.arange(first, min(first + (1 << 16), len(sizes))))
            for begun, end in size_runs(sizes[numbers], BATCH_BYTES):
                some = numbers[begun:end]
                for record in file.read_many(some.astype(np.uint64)):
                    writer.write(record)
                done_bytes += int(sizes[some].sum())
                report(done_bytes, int(starts[-1]))
