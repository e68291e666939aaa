"""Contents of a file or a folder."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py

from shardkeep._core import record_content
from shardkeep._summary import summary
from shardkeep.files.kinds.kind import FileKind, identify, require_kind
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.read_errors import is_of_hdf5, reading
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.dtypes import describe_type
from shardkeep.hdf5.storage.matlab import empty_shape
from shardkeep.jobs.cat import example_or_none, feature_type
from shardkeep.jobs.inspection.folder import FolderInfo, folder_info
from shardkeep.jobs.inspection.merged import MergedInfo, merged_info
from shardkeep.jobs.inspection.workers import WorkerInfo, worker_of
from shardkeep.jobs.json_values import plain
from shardkeep.progress import Count, Progress, ticking
from shardkeep.tfrecord.damage import Damage, OnCorrupt, check_on_corrupt, read_records
from shardkeep.tfrecord.format.file_kind import may_hold_records

__all__ = [
    "DatasetInfo",
    "FeatureInfo",
    "HDF5Info",
    "TFRecordInfo",
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
    type : {"int64", "float32", "bytes", "none"}
        "none" for a feature without a kind.
    values : int
        Number of values in the record.
    size_bytes : int or None
        Size of all values of a bytes feature; None for the other types.
    sample : list
        The first few values as JSON types; bytes as text with escapes.
    """

    name: str
    type: str
    values: int
    size_bytes: int | None
    sample: list[Any]

    __repr__ = summary


@dataclass(frozen=True)
class TFRecordInfo:
    """Contents of a TFRecord file.

    Attributes
    ----------
    path : str
    file_bytes : int
        Size of the file.
    compression : {"gzip", "zlib"} or None
        Compression of the file.
    records : int
        Number of records.
    payload_bytes : int
        Size of all records, without framing and compression.
    smallest_bytes, largest_bytes : int or None
        Size of the smallest and of the largest record; None without records.
    features : tuple of FeatureInfo or None
        Features of the first record; None if it is not a tf.train.Example.
    content : str or None
        Name of the message or data in the first record, such as "tf.train.SequenceExample" or "JSON text";
        None for bytes of no known form, or without records.
    damaged : tuple of Damage
        Damaged records that were skipped or repaired; the numbers above are without those that were skipped.
    """

    path: str
    file_bytes: int
    compression: str | None
    records: int
    payload_bytes: int
    smallest_bytes: int | None
    largest_bytes: int | None
    features: tuple[FeatureInfo, ...] | None
    content: str | None = None
    damaged: tuple[Damage, ...] = ()

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as types that JSON supports, with their ``kind``."""
        return {"kind": "tfrecord"} | asdict(self)


@dataclass(frozen=True)
class DatasetInfo:
    """One dataset of an HDF5 file.

    Attributes
    ----------
    name : str
    shape : tuple of int or None
        Shape; None for a dataset with a null dataspace.
    dtype : str
    chunks : tuple of int or None
        Shape of a chunk; None for a dataset without chunks.
    filters : tuple of str
        HDF5 names of the filters.
    stored_bytes : int
        Size of the data in the file.
    virtual : bool
        True for a virtual dataset, whose rows are in other files.
    attributes : dict
        Name to value, as JSON types.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    chunks: tuple[int, ...] | None
    filters: tuple[str, ...]
    stored_bytes: int
    virtual: bool
    attributes: dict[str, Any]

    __repr__ = summary


@dataclass(frozen=True)
class HDF5Info:
    """Contents of an HDF5 file.

    Attributes
    ----------
    path : str
    file_bytes : int
        Size of the file.
    attributes : dict
        Attributes of the file, as JSON types.
    datasets : tuple of DatasetInfo
        Datasets in the order of their names.
    worker : WorkerInfo or None
        The commit, if the file is a segment of a `WorkerFile`.
    collected : bool
        True if a collector wrote the file.
    merged : MergedInfo or None
        Ranks, steps, sources and receipts, if `shardkeep.hdf5.merge` wrote the file.
    """

    path: str
    file_bytes: int
    attributes: dict[str, Any]
    datasets: tuple[DatasetInfo, ...]
    worker: WorkerInfo | None
    collected: bool = False
    merged: MergedInfo | None = None

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as types that JSON supports, with their ``kind``."""
        return {"kind": "hdf5"} | asdict(self)


@accepts_urls("path", folders=True)
def info(
    path: str | os.PathLike[str], *, on_corrupt: OnCorrupt = "raise", progress: Progress | None = None
) -> TFRecordInfo | HDF5Info | FolderInfo:
    """Return the contents of a TFRecord file, an HDF5 file or a folder.

    The kind of the file is determined from its bytes. Every record of a TFRecord file is read and its
    checksums are verified. Nothing is written.

    Parameters
    ----------
    path : path
        File or folder.
    on_corrupt : {"raise", "skip", "repair"}
        What to do with a damaged record: fail, leave it out, or correct it if one bit is flipped (and fail at
        other damage). The result names each of them.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` while the records are read.

    Returns
    -------
    TFRecordInfo, HDF5Info or FolderInfo

    Raises
    ------
    NotFoundError
        `path` does not exist.
    FormatError
        The file is of another kind, which the message names.
    CorruptDataError
        A record or the HDF5 file is damaged.
    LockError
        Another process has the HDF5 file open for writing.

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
    check_on_corrupt(on_corrupt)
    kind = identify(path)
    if kind.name == "folder":
        return folder_info(os.fspath(path), progress)
    if kind.name == "hdf5":
        return _hdf5(path)
    if kind.name not in ("tfrecord", "empty") and not may_hold_records(kind):
        require_kind(path, "tfrecord", "hdf5", found=kind)
    return _tfrecord(path, kind, on_corrupt, progress)


def _tfrecord(
    path: str | os.PathLike[str], kind: FileKind, on_corrupt: OnCorrupt, progress: Progress | None
) -> TFRecordInfo:
    file_bytes = os.path.getsize(path)
    count = Count(progress or (lambda *_: None), file_bytes)
    records = payload_bytes = 0
    smallest: int | None = None
    largest: int | None = None
    first: bytes | None = None
    damaged: list[Damage] = []
    found = read_records(path, on_corrupt=on_corrupt, on_damage=damaged.append)
    is_compressed = kind.compression is not None
    for _, record in ticking(found, _size_of, file_bytes, count.add, compressed=is_compressed):
        size = len(record)
        if first is None:
            first, smallest, largest = record, size, size
        records += 1
        payload_bytes += size
        smallest = size if smallest is None else min(smallest, size)
        largest = size if largest is None else max(largest, size)
    return TFRecordInfo(
        path=os.fspath(path),
        file_bytes=file_bytes,
        compression=kind.compression,
        records=records,
        payload_bytes=payload_bytes,
        smallest_bytes=smallest,
        largest_bytes=largest,
        features=None if first is None else _features(first),
        content=None if first is None else record_content(first),
        damaged=tuple(damaged),
    )


def _size_of(numbered: tuple[int, bytes]) -> int:
    return len(numbered[1])


def _features(record: bytes) -> tuple[FeatureInfo, ...] | None:
    example = example_or_none(record)
    if example is None:
        return None
    return tuple(_feature(name, values) for name, values in sorted(example.items()))


def _feature(name: str, values: Any) -> FeatureInfo:
    kind = feature_type(values)
    if values is None:
        return FeatureInfo(name, kind, 0, None, [])
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
            datasets=tuple(_dataset(one, source.dataset(one)) for one in sorted(source.dataset_names())),
            worker=worker_of(name, [source]) if source.record is not None else None,
            collected=source.collected,
            merged=merged_info(source),
        )


def _dataset(name: str, dataset: h5py.Dataset) -> DatasetInfo:
    properties = dataset.id.get_create_plist()
    empty = empty_shape(dataset.id)
    filters = (properties.get_filter(number)[3] for number in range(properties.get_nfilters()))
    return DatasetInfo(
        name=name,
        shape=dataset.shape if empty is None else empty,
        dtype=describe_type(dataset.id.get_type()),
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
        # Some HDF5 types have no NumPy counterpart; the other attributes are still shown.
        return f"(unreadable: {error})"
    return "(empty)" if isinstance(value, h5py.Empty) else plain(value)
