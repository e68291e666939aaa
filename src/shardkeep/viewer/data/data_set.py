"""Data sets in a folder, with the numbers of records that stored indexes have."""

from __future__ import annotations

import functools
import os
import re
import warnings
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.leftovers import find_companion
from shardkeep.tfrecord.index.dataset_file import dataset_path, open_dataset, versions_of
from shardkeep.tfrecord.index.scan import frame_starts
from shardkeep.tfrecord.index.state import stored_indexes
from shardkeep.tfrecord.index.store import cache_folder

__all__ = ["SMALL_BYTES", "DataSet", "ShardState", "data_sets", "state_of"]

# Smaller files are scanned as fast as an index file is read.
SMALL_BYTES = 1 << 20
# A folder of small shards is scanned at once up to this size.
_SCAN_BYTES = 128 << 20


@dataclass(frozen=True)
class ShardState:
    """What is known of a shard without a scan.

    Attributes
    ----------
    records : int or None
        Number of records; None if the shard is not indexed.
    source : {"", "data set", "stored", "scanned"}
        Origin of the number: the index of the data set, that of the shard, or a scan of a small shard.
    fault : str
        Fault of the shard or of its index; empty if none is known.
    """

    records: int | None = None
    source: str = ""
    fault: str = ""


@dataclass(frozen=True)
class DataSet:
    """Shards of a folder that belong together.

    Attributes
    ----------
    folder, name : str
        Path of the folder, and the common name of the files with "#" for each number.
    names : tuple of str
        Names of the shards, in order.
    sizes : ndarray of int64
        Size of each shard in bytes.
    states : tuple of ShardState
    """

    folder: str
    name: str
    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    states: tuple[ShardState, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all shards."""
        return int(self.sizes.sum())

    @property
    def unindexed(self) -> int:
        """Number of shards whose records are not known."""
        return sum(one.records is None for one in self.states)

    @property
    def records(self) -> int:
        """Number of records of the shards whose records are known."""
        return sum(one.records or 0 for one in self.states)

    @property
    def faults(self) -> int:
        """Number of shards with a fault."""
        return sum(bool(one.fault) for one in self.states)


def data_sets(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the shards of each data set of a folder, the set with most shards first.

    A set is the files whose names differ only in numbers. Their kind is that of a few of them, so that the
    other files of a large set are not opened.
    """
    return _data_sets(folder, os.stat(folder).st_mtime_ns)


@functools.lru_cache(maxsize=32)
def _data_sets(folder: str, mtime_ns: int) -> dict[str, tuple[str, ...]]:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in os.listdir(folder):
        if "tfevents" not in name and find_companion(name) is None:
            groups[re.sub(r"\d+", "#", name)].append(name)
    found = {group: tuple(sorted(names)) for group, names in groups.items() if _has_records(folder, names)}
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _has_records(folder: str, names: list[str]) -> bool:
    for name in dict.fromkeys((names[0], names[len(names) // 2], names[-1])):
        try:
            if identify(os.path.join(folder, name)).name == "tfrecord":
                return True
        except (ShardkeepError, OSError):
            continue
    return False


def state_of(folder: str, name: str) -> DataSet:
    """Return a data set of a folder with the records that are known.

    Parameters
    ----------
    folder : str
    name : str
        A name of `data_sets`.

    Raises
    ------
    PlanError
        There is no such set.
    """
    names = data_sets(folder).get(name)
    if names is None:
        raise PlanError(f"there is no data set {name!r} in this folder")
    start = os.path.join(folder, "")
    paths = [start + one for one in names]
    versions = versions_of(paths)
    while versions is None:  # a shard was removed after the folder was listed, or is a broken link
        names = tuple(one for one in names if os.path.exists(start + one))
        paths = [start + one for one in names]
        versions = versions_of(paths)
    # An index that is stored later changes one of these folders.
    stamps = tuple(os.stat(one).st_mtime_ns for one in (folder, cache_folder()) if os.path.isdir(one))
    states = _states(tuple(paths), versions.tobytes(), stamps)
    return DataSet(folder, name, names, versions["size"].astype(np.int64), states)


@functools.lru_cache(maxsize=8)
def _states(paths: tuple[str, ...], versions: bytes, stamps: tuple[int, ...]) -> tuple[ShardState, ...]:
    found = versions_of(paths)
    if found is None or found.tobytes() != versions:
        return (ShardState(),) * len(paths)
    if os.path.isdir(cache_folder()):
        path = dataset_path(paths)
        positions = None if path is None else open_dataset(path, found)
        if positions is not None:
            return tuple(ShardState(count, "data set") for count in positions.records.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        states = [_stored(path) for path in paths]
    small = [
        number
        for number, state in enumerate(states)
        if state.records is None and not state.fault and found["size"][number] < SMALL_BYTES
    ]
    if int(found["size"][small].sum()) <= _SCAN_BYTES:
        for number in small:
            states[number] = _scanned(paths[number])
    return tuple(states)


def _stored(path: str) -> ShardState:
    try:
        fault = ""
        for index in stored_indexes(path, os.stat(path)):
            if index.records is not None:
                return ShardState(index.records, "stored")
            fault = fault or f"its index {index.fault}"
        return ShardState(fault=fault)
    except OSError as error:
        return ShardState(fault=f"cannot be read: {error.strerror or error}")


def _scanned(path: str) -> ShardState:
    try:
        return ShardState(len(frame_starts([path], threads=1)[0]) - 1, "scanned")
    except ShardkeepError as error:
        return ShardState(fault=str(error).removeprefix(f"{path}: "))
    except OSError as error:
        return ShardState(fault=f"cannot be read: {error.strerror or error}")
