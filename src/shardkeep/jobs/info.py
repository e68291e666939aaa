"""Say what is in a file or a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py

from shardkeep.files.kinds.kind import FileKind, identify, require_kind
from shardkeep.hdf5.read_errors import is_of_hdf5, reading
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.segments.series_check import check_follows
from shardkeep.hdf5.sources.source import Source, open_source
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.dtypes import describe_dtype
from shardkeep.jobs.cat import example_or_none, feature_type
from shardkeep.jobs.json_values import plain
from shardkeep.tfrecord import Reader

__all__ = [
    "DatasetInfo",
    "FeatureInfo",
    "FileEntry",
    "FolderInfo",
    "HDF5Info",
    "TFRecordInfo",
    "WorkerInfo",
    "info",
]

_SAMPLE_VALUES = 4
_SAMPLE_BYTES = 16


@dataclass(frozen=True)
class FeatureInfo:
    """One feature of a tf.train.Example.

    Attributes
    ----------
    name : str
    type : {"int64", "float32", "bytes"}
    values : int
        How many values the feature has in that record.
    size_bytes : int or None
        Of a bytes feature: all its values together.
    sample : list
        The first few values, JSON-able; of bytes the first few as text with escapes.
    """

    name: str
    type: str
    values: int
    size_bytes: int | None
    sample: list[Any]


@dataclass(frozen=True)
class TFRecordInfo:
    """What is in one TFRecord file.

    Attributes
    ----------
    path : str
    file_bytes : int
        Size of the file as it lies on disk.
    compression : {"gzip", "zlib"} or None
    records : int
    payload_bytes : int
        The records' own bytes, without framing and uncompressed.
    smallest_bytes, largest_bytes : int or None
        Of a record; None if there is none.
    features : tuple of FeatureInfo or None
        Of the first record; None if it is no tf.train.Example.
    """

    path: str
    file_bytes: int
    compression: str | None
    records: int
    payload_bytes: int
    smallest_bytes: int | None
    largest_bytes: int | None
    features: tuple[FeatureInfo, ...] | None

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, with its ``kind``."""
        return {"kind": "tfrecord"} | asdict(self)


@dataclass(frozen=True)
class DatasetInfo:
    """One dataset of an HDF5 file.

    Attributes
    ----------
    name : str
    shape : tuple of int or None
        None for a dataset of the null dataspace.
    dtype : str
    chunks : tuple of int or None
    filters : tuple of str
        Compression and the like, by their HDF5 names.
    stored_bytes : int
        What its data takes in the file.
    virtual : bool
        True if its rows lie in other files.
    attributes : dict
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    chunks: tuple[int, ...] | None
    filters: tuple[str, ...]
    stored_bytes: int
    virtual: bool
    attributes: dict[str, Any]


@dataclass(frozen=True)
class WorkerInfo:
    """What one rank of a run has committed.

    Attributes
    ----------
    path : str
        The folder of the rank, or the one file that was asked about.
    rank, world_size : int
        World size as of the newest commit.
    commits : int
        How many commits stand; each is a file.
    committed_step : int
        Step of the newest one.
    rows : dict
        Dataset name to committed rows.
    """

    path: str
    rank: int
    world_size: int
    commits: int
    committed_step: int
    rows: dict[str, int]


@dataclass(frozen=True)
class HDF5Info:
    """What is in one HDF5 file; ``worker`` is None unless it is a commit of a `WorkerFile`.

    ``collected`` tells whether a collector wrote it.
    """

    path: str
    file_bytes: int
    attributes: dict[str, Any]
    datasets: tuple[DatasetInfo, ...]
    worker: WorkerInfo | None
    collected: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, with its ``kind``."""
        return {"kind": "hdf5"} | asdict(self)


@dataclass(frozen=True)
class FileEntry:
    """One file of a folder: its name there, what it is, and its size."""

    name: str
    described: str
    file_bytes: int


@dataclass(frozen=True)
class FolderInfo:
    """What is in a folder (not in the folders inside it); ``workers`` by rank, of a run folder."""

    path: str
    files: tuple[FileEntry, ...]
    workers: tuple[WorkerInfo, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-able, with its ``kind``."""
        return {"kind": "folder"} | asdict(self)


def info(path: str | os.PathLike[str]) -> TFRecordInfo | HDF5Info | FolderInfo:
    """Say what is in a TFRecord file, an HDF5 file or a folder of them.

    What it is, is told from its bytes. Every record of a TFRecord file is read and its checksums
    verified; nothing is changed.

    Raises
    ------
    NotFoundError
        If there is nothing at `path`.
    FormatError
        If it is another kind of file; the message says which.
    CorruptDataError
        If a record or the HDF5 file is damaged.
    LockError
        If another process holds the HDF5 file open for writing.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from shardkeep.tfrecord import Writer
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tfrecord"
    >>> with Writer(path) as writer:
    ...     writer.write_example({"label": 3})
    >>> found = info(path)
    >>> found.records, found.features[0].name, found.features[0].sample
    (1, 'label', [3])
    """
    kind = identify(path)
    if kind.name == "folder":
        return _folder(Path(path))
    require_kind(path, "tfrecord", "empty", "hdf5", found=kind)
    return _hdf5(path) if kind.name == "hdf5" else _tfrecord(path, kind)


def _tfrecord(path: str | os.PathLike[str], kind: FileKind) -> TFRecordInfo:
    records = payload_bytes = 0
    smallest: int | None = None
    largest: int | None = None
    first: bytes | None = None
    for record in Reader(path):
        size = len(record)
        if first is None:
            first, smallest, largest = record, size, size
        records += 1
        payload_bytes += size
        smallest = size if smallest is None else min(smallest, size)
        largest = size if largest is None else max(largest, size)
    return TFRecordInfo(
        path=os.fspath(path),
        file_bytes=Path(path).stat().st_size,
        compression=kind.compression,
        records=records,
        payload_bytes=payload_bytes,
        smallest_bytes=smallest,
        largest_bytes=largest,
        features=None if first is None else _features(first),
    )


def _features(record: bytes) -> tuple[FeatureInfo, ...] | None:
    example = example_or_none(record)
    if example is None:
        return None
    return tuple(_feature(name, values) for name, values in sorted(example.items()))


def _feature(name: str, values: Any) -> FeatureInfo:
    kind = feature_type(values)
    if kind != "bytes":
        return FeatureInfo(name, kind, len(values), None, plain(values[:_SAMPLE_VALUES]))
    sample = [_escaped(value[:_SAMPLE_BYTES]) for value in values[:_SAMPLE_VALUES]]
    return FeatureInfo(name, kind, len(values), sum(map(len, values)), sample)


def _escaped(data: bytes) -> str:
    return repr(data)[2:-1]


def _hdf5(path: str | os.PathLike[str]) -> HDF5Info:
    name = os.fspath(path)
    with open_source(name) as source, reading(name):
        return HDF5Info(
            path=name,
            file_bytes=Path(name).stat().st_size,
            attributes=_attributes(source.file),
            datasets=tuple(_dataset(source.dataset(one)) for one in sorted(source.dataset_names())),
            worker=_worker(name, [source]) if source.record is not None else None,
            collected=source.collected,
        )


def _worker(path: str, segments: Iterable[Source]) -> WorkerInfo | None:
    newest = None
    commits = 0
    rows: dict[str, int] = {}
    path_before = path
    for segment in segments:
        if segment.record is not None and newest is not None:
            check_follows(segment.record, segment.path, newest, path_before)
        newest, path_before = segment.record or newest, segment.path
        commits += 1
        for name, dataset in (segment.record.datasets if segment.record else {}).items():
            rows[name] = rows.get(name, 0) + dataset.rows
    if newest is None:
        return None
    return WorkerInfo(path, newest.rank, newest.world_size, commits, newest.step, rows)


def _dataset(dataset: h5py.Dataset) -> DatasetInfo:
    properties = dataset.id.get_create_plist()
    filters = (properties.get_filter(number)[3] for number in range(properties.get_nfilters()))
    return DatasetInfo(
        name=dataset.name.lstrip("/"),
        shape=dataset.shape,
        dtype=describe_dtype(dataset.dtype),
        chunks=dataset.chunks,
        filters=tuple(name.decode("ascii", "replace") for name in filters),
        stored_bytes=dataset.id.get_storage_size(),
        virtual=dataset.is_virtual,
        attributes=_attributes(dataset),
    )


def _attributes(item: Any) -> dict[str, Any]:
    # A name that is not UTF-8 comes as bytes.
    names = {
        name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name: name
        for name in item.attrs
    }
    return {text: _attribute(item.attrs, name) for text, name in sorted(names.items())}


def _attribute(attributes: Any, name: str | bytes) -> Any:
    try:
        value = in_stored_order(attributes[name], attributes.get_id(name).dtype)
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        # Some types that HDF5 can hold have no NumPy counterpart; the rest is still worth showing.
        return f"(unreadable: {error})"
    return "(empty)" if isinstance(value, h5py.Empty) else plain(value)


def _folder(path: Path) -> FolderInfo:
    workers = (_worker(folder, _segments(folder)) for folder in list_ranks(os.fspath(path)).values())
    return FolderInfo(
        path=os.fspath(path),
        files=tuple(_entry(entry) for entry in sorted(path.iterdir())),
        workers=tuple(worker for worker in workers if worker is not None),
    )


def _segments(folder: str) -> Iterator[Source]:
    for segment in list_segments(folder):
        with open_source(segment.path) as source, reading(segment.path):
            yield source


def _entry(path: Path) -> FileEntry:
    try:
        kind = identify(path)
        return FileEntry(path.name, kind.described, 0 if kind.name == "folder" else path.stat().st_size)
    except FileNotFoundError:
        described = "a link to nothing" if path.is_symlink() else "removed while this was read"
    except OSError as error:
        described = f"not readable: {error.strerror or error}"
    return FileEntry(path.name, described, 0)
