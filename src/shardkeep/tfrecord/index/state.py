"""State of the stored indexes of a shard, from their heads alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from shardkeep._paths_in_messages import shown
from shardkeep.errors import UntrustedFileError
from shardkeep.tfrecord.index.binary import read_index_head
from shardkeep.tfrecord.index.store import index_paths

__all__ = ["StoredIndex", "stored_indexes"]


@dataclass(frozen=True)
class StoredIndex:
    """An index file of a shard.

    Attributes
    ----------
    path : str
    records : int or None
        Number of records; None if the index does not fit the shard.
    fault : str or None
        The reason why it does not.
    """

    path: str
    records: int | None = None
    fault: str | None = None


def stored_indexes(path: str, status: os.stat_result) -> Iterator[StoredIndex]:
    """Yield the index files of a shard in the order of preference.

    Size and time of the shard are compared, not its content; of a local copy of a remote shard only the size.

    Parameters
    ----------
    path : str
        The shard.
    status : os.stat_result
        Its status.

    Raises
    ------
    PlanError
        ``SHARDKEEP_INDEX`` has a value that is not valid.
    """
    for index_path in index_paths(path):
        try:
            head = read_index_head(index_path, status)
        except UntrustedFileError as error:
            yield StoredIndex(index_path, fault=str(error))
            continue
        except FileNotFoundError:
            continue
        except OSError as error:
            yield StoredIndex(index_path, fault=f"cannot be read: {error.strerror or error}")
            continue
        if head is None:
            yield StoredIndex(index_path, fault="is damaged or of another version")
        elif head.size_bytes != status.st_size:
            sizes = f"{head.size_bytes:,} bytes, which now has {status.st_size:,}"
            yield StoredIndex(index_path, fault=f"is of a shard of {sizes}")
        elif head.mtime_ns != status.st_mtime_ns and shown(path) == path:
            yield StoredIndex(
                index_path, fault="is of another version of the shard, with another time of change"
            )
        else:
            yield StoredIndex(index_path, head.records)
