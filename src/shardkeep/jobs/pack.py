"""Make TFRecord shards of what people have: folders of images, tables, arrays, tar files."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import FormatError, NotFoundError, PlanError, ShardkeepError
from shardkeep.files.file_set import FileSet
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import PathsLike, expand
from shardkeep.files.publish import Exists
from shardkeep.jobs.division.divide import ShardFile
from shardkeep.jobs.division.packed_frames import batches
from shardkeep.jobs.pack_sources.arrays import ArrayRows, read_arrays
from shardkeep.jobs.pack_sources.images import ImageFolder, read_labels
from shardkeep.jobs.pack_sources.source import PackSource
from shardkeep.jobs.pack_sources.tables import ArrowTable, CsvTable
from shardkeep.jobs.pack_sources.webdataset import WebDataset
from shardkeep.plan import Permutation
from shardkeep.tfrecord import ShardWriter, encode_example
from shardkeep.tfrecord.index.index import frame_starts
from shardkeep.tfrecord.shard_names import early_name
from shardkeep.tfrecord.shard_sinks import OpenSink

__all__ = ["Kind", "PackReport", "pack"]

Kind = Literal["auto", "images", "csv", "parquet", "arrow", "numpy", "webdataset"]
OnBad = Literal["raise", "skip"]
Arrays = npt.NDArray[Any] | Mapping[str, npt.ArrayLike]

_SHARD_BYTES = 128 << 20
_LISTED = 20
_TICK_RECORDS = 64
_STREAM = 0x7061636B  # keeps the permutation apart from those of loaders with the same seed


@dataclass(frozen=True)
class PackReport:
    """What `pack` did.

    Attributes
    ----------
    kind : str
        What the source was.
    sources : tuple of str
    outputs : tuple of ShardFile
    records, bytes : int
        Of all outputs together.
    features : dict of str to str
        Name to "int64", "float32" or "bytes".
    labels : dict of str to int, or None
        The number of each label, where the source has names for them.
    skipped : int
        Records that were left out because they are bad.
    bad : tuple of str
        Why, of the first 20 of them.
    notes : tuple of str
        Where values are stored with less precision than they had.
    shuffle : int or None
        The seed.
    seconds : float
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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return asdict(self)


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
    compression: str | None = None,
    exists: Exists = "fail",
    progress: Callable[[int, int], None] | None = None,
) -> PackReport:
    r"""Write the records of a source as Examples into shards, which appear together, or not at all.

    Parameters
    ----------
    source : path, pattern, iterable of them, array, or mapping of str to array
        One of these, told from its content:

        - a folder of PNG, JPEG and WebP files, those of each label in a sub-folder of its name: features
          "image_raw" (the bytes of the file), "height", "width", "depth" (channels), "filename" (relative
          to the folder) and, with sub-folders, "label". Names that begin with a dot are passed over;
        - CSV files with a header: one feature for each column; how types are told: `CsvTable`;
        - Parquet or Arrow files (needs pyarrow): one feature for each column;
        - a .npy or .npz file, or arrays: row i of each array becomes a feature of record i;
        - WebDataset tar files: the members of a key become one record, see `WebDataset`.
    pattern : str or os.PathLike
        Of the names: ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``.
    kind : str
        Where the content does not tell, or should not decide.
    shards, shard_bytes, shard_records : int, optional
        As for `shardkeep.tfrecord.ShardWriter`; ``shard_bytes`` of 128 MiB if none is given. With `shards`
        records are dealt out in turn.
    shuffle : int, optional
        A seed: the records are stored in an order of which nobody can tell the source's. Worth it wherever
        something reads the shards without shuffling: a folder packed label by label is read label by label.
        Takes as much disk again, meanwhile; memory 8 bytes a record.
    labels : mapping of str to int, or path, optional
        The number of each label, instead of their alphabetical order: for a second set that must agree with
        the first. A path is a file that `labels_path` wrote.
    labels_path : path, optional
        Where the map of labels appears, as JSON, together with the shards.
    dtypes : mapping of str to str, optional
        For CSV: column to "int64", "float32" or "bytes", where it should not be inferred.
    on_bad : {"raise", "skip"}
        What to do about a record that is bad: a file that is no whole image, a row with too few cells.
        Skipped ones are counted and told. A source that cannot be read on is an error in any case.
    compression, exists
        As for `shardkeep.tfrecord.ShardWriter`.
    progress : callable, optional
        Called with the bytes of the source done and of all (twice as many with `shuffle`).

    Returns
    -------
    PackReport

    Raises
    ------
    FormatError, CorruptDataError, TruncatedFileError
        The source is of no known kind, or damaged; or a record is, and the message names it.
    SchemaError
        Values that an Example cannot hold, an unknown label, columns that differ between files.
    NotFoundError
        There is no such source, or nothing in it.
    MissingExtraError
        Parquet and Arrow need pyarrow.
    ExistsError, LockTimeoutError, DurabilityError, PlanError
        As for `shardkeep.tfrecord.ShardWriter`. Nothing is left of the shards then.

    Notes
    -----
    The same source, options and seed give the same files, on every machine.

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
        raise PlanError(f'on_bad={on_bad!r} means nothing here: use "raise" or "skip"')
    if shards is None and shard_bytes is None and shard_records is None:
        shard_bytes = _SHARD_BYTES
    given = _open(source, kind, labels, dtypes)
    if labels_path is not None and given.labels is None:
        raise PlanError("labels_path= is for a source that has labels: a folder with sub-folders of images")
    writer = ShardWriter(
        pattern,
        shards=shards,
        shard_bytes=shard_bytes,
        shard_records=shard_records,
        compression=compression,
        exists=exists,
    )
    with writer:
        bad: list[str] = []
        skipped = _Skipped(on_bad, bad)
        if labels_path is not None:
            content = json.dumps(given.labels, indent=1, ensure_ascii=False) + "\n"
            writer.add_file(labels_path, content.encode())
        told = _Told(progress, given, passes=1 if shuffle is None else 2)
        records = _encoded(given, skipped, told)
        if shuffle is None:
            for record in records:
                writer.write(record)
        else:
            _write_shuffled(records, writer, shuffle, told)
        if not sum(writer.records):
            raise NotFoundError(f"{_name(given)}: no record in it" + (f"; {bad[0]}" if bad else ""))
    outputs = tuple(
        ShardFile(path, count, os.path.getsize(path))
        for path, count in zip(writer.paths, writer.records, strict=True)
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
        bad=tuple(bad),
        notes=tuple(given.notes),
        shuffle=shuffle,
        seconds=time.perf_counter() - begin,
    )


# -- which source it is --------------------------------------------------------------------------------


def _open(
    source: PathsLike | Arrays,
    kind: Kind,
    labels: Mapping[str, int] | str | os.PathLike[str] | None,
    dtypes: Mapping[str, str] | None,
) -> PackSource:
    if kind not in get_args(Kind):
        raise PlanError(f"kind={kind!r} is not known: {', '.join(get_args(Kind))}")
    if isinstance(source, (np.ndarray, Mapping)):
        return ArrayRows(source if isinstance(source, Mapping) else {"data": source})
    paths = expand(source)
    kinds = [_kind_of(path) if kind == "auto" else kind for path in paths]
    if len(set(kinds)) > 1:
        other = next(number for number, one in enumerate(kinds) if one != kinds[0])
        raise PlanError(
            f"{paths[other]}: {kinds[other]}, but {paths[0]} is {kinds[0]}; pack one kind at a time",
            path=paths[other],
        )
    found = kinds[0]
    if labels is not None and found != "images":
        raise PlanError(f"labels= is for folders of images, and {paths[0]} is {found}")
    if dtypes is not None and found != "csv":
        raise PlanError(f"dtypes= is for CSV files, and {paths[0]} is {found}")
    if found == "images":
        if len(paths) > 1:
            raise PlanError(f"{paths[1]}: one folder of images at a time", path=paths[1])
        return ImageFolder(paths[0], None if labels is None else read_labels(labels))
    if found == "csv":
        return CsvTable(paths, dtypes)
    if found == "numpy":
        return read_arrays(paths)
    return WebDataset(paths) if found == "webdataset" else ArrowTable(paths, found)


_BY_CONTENT = (
    ("a Parquet file", "parquet"),
    ("an Arrow file", "arrow"),
    ("a NumPy .npy file", "numpy"),
    ("a zip archive (or .npz", "numpy"),
    ("a tar archive", "webdataset"),
    ("gzip-compressed data; inside is a tar archive", "webdataset"),
)
_BY_NAME = {
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".tbz2": "webdataset",
    ".txz": "webdataset",
    ".bz2": "webdataset",
    ".xz": "webdataset",
}


def _kind_of(path: str) -> str:
    kind = identify(path)
    if kind.name == "folder":
        return "images"
    for described, name in _BY_CONTENT:
        if kind.described.startswith(described):
            return name
    suffix = os.path.splitext(path)[1].lower()
    if kind.name == "other" and suffix in _BY_NAME:
        return _BY_NAME[suffix]
    raise FormatError(
        f"{path}: {kind.described}; pack takes a folder of images, CSV, Parquet, Arrow, NumPy and WebDataset"
        " tar files (say kind= if it is one of them)",
        path=path,
    )


def _name(source: PackSource) -> str:
    return source.paths[0] if source.paths else "the arrays"


# -- writing -------------------------------------------------------------------------------------------


class _Skipped:
    """Counts the bad records, and remembers why of the first."""

    def __init__(self, on_bad: OnBad, messages: list[str]) -> None:
        self.count = 0
        self._on_bad, self._messages = on_bad, messages

    def tell(self, error: ShardkeepError) -> None:
        if self._on_bad == "raise":
            raise error
        self.count += 1
        if len(self._messages) < _LISTED:
            self._messages.append(str(error))


class _Told:
    """Tells the caller how far it is, over one pass or two."""

    def __init__(
        self, progress: Callable[[int, int], None] | None, source: PackSource, *, passes: int
    ) -> None:
        self._progress, self._source, self._passes = progress, source, passes

    def reading(self) -> None:
        if self._progress is not None:
            self._progress(self._source.done_bytes, self._source.total_bytes * self._passes)

    def rest(self, share: float) -> None:
        if self._progress is not None:
            total = self._source.total_bytes
            self._progress(int(total * (self._passes - 1 + share)), total * self._passes)


def _encoded(source: PackSource, skipped: _Skipped, told: _Told) -> Iterator[bytes]:
    for number, item in enumerate(source):
        if isinstance(item, ShardkeepError):
            skipped.tell(item)
        else:
            yield encode_example(item)
        if number % _TICK_RECORDS == 0:
            told.reading()
    source.done_bytes = source.total_bytes
    told.reading()


def _write_shuffled(records: Iterator[bytes], writer: ShardWriter, seed: int, told: _Told) -> None:
    """Write all records to a file that nobody sees, and from there in their new order."""
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
        done_bytes = 0
        for first in range(0, len(sizes), 1 << 16):
            numbers = order.forward(np.arange(first, min(first + (1 << 16), len(sizes))))
            for batch in batches(sizes[numbers]):
                for record in file.read_many(numbers[batch].astype(np.uint64)):
                    writer.write(record)
                done_bytes += int(sizes[numbers[batch]].sum())
                told.rest(done_bytes / int(starts[-1]))
