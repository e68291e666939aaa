"""Record offsets of the shards of a data set, packed in two to three bytes a record."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from shardkeep._core import RecordPositions
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.threads.groups import divide
from shardkeep.files.threads.work import WorkFile
from shardkeep.tfrecord.index.dataset_file import dataset_path, open_dataset, save_dataset, versions_of
from shardkeep.tfrecord.index.index import load_indexes
from shardkeep.tfrecord.index.store import index_mode

__all__ = ["load_positions"]

# Offsets of a group take 8 bytes a record until they are packed.
_GROUP_FILES = 4096
_GROUP_BYTES = 1 << 30
# Smaller data sets are read as fast from the index files of their shards, and take a few megabytes.
_WORTH_FILES = 1000
_WORTH_BYTES = 4 << 30


def load_positions(paths: Sequence[str | os.PathLike[str]]) -> RecordPositions:
    """Return the record offsets of shards, packed.

    Parameters
    ----------
    paths : sequence of paths
        Uncompressed TFRecord files.

    Raises
    ------
    CorruptRecordError, TruncatedFileError, FormatError, NotFoundError
        As `build_index`.

    Notes
    -----
    Many or large shards have one index for all of them, which is mapped: the processes of a host share its
    memory (see `shardkeep.tfrecord.index.dataset_file`). It is made from the indexes of the shards, or from a
    scan. If it cannot be stored, the packed offsets are in the memory of this process.
    """
    names = [local_path(path) for path in paths]

    versions = versions_of(names)
    sizes = [0] * len(names) if versions is None else versions["size"].tolist()

    def parts() -> Iterator[RecordPositions]:
        files = map(WorkFile, names, sizes)
        for group in divide(files, most_bytes=_GROUP_BYTES, most_files=_GROUP_FILES):
            indexes = load_indexes([one.path for one in group])
            yield RecordPositions([index.starts for index in indexes])

    is_worth = len(names) >= _WORTH_FILES or sum(sizes) >= _WORTH_BYTES
    if is_worth and versions is not None and index_mode(automatic=True) != "off":
        path = dataset_path(names)
        if path is not None:
            found = open_dataset(path, versions)
            if found is None:
                save_dataset(path, names, versions, parts)
                found = open_dataset(path, versions)
            if found is not None:
                return found
    return RecordPositions.joined(list(parts()))
