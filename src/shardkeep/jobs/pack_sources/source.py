"""Base class of the sources of `pack`, which yield the features of one record after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardkeep.errors import ShardkeepError

__all__ = ["Item", "PackSource"]

# The features of a record, or the error of a bad one.
Item = dict[str, Any] | ShardkeepError


class PackSource:
    """Files, or arrays in memory, that become records; iterated once.

    Attributes
    ----------
    kind : str
        "images", "csv", "parquet", "arrow", "numpy" or "webdataset".
    paths : tuple of str
        Files of the source; empty for arrays in memory.
    features : dict of str to str
        Name to "int64", "float32" or "bytes"; complete after the iteration.
    labels : dict of str to int, or None
        Number of each label, if the source has names for them.
    notes : list of str
        Remarks on values that are stored with less precision than they had.
    left_out : list of str
        Names of the files at the top of a folder that are not data of this kind.
    total_bytes, done_bytes : int
        Size of the source, and the part of it that has been read.
    """

    kind = ""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self.features: dict[str, str] = {}
        self.labels: dict[str, int] | None = None
        self.notes: list[str] = []
        self.left_out: list[str] = []
        self.total_bytes = 0
        self.done_bytes = 0

    def __iter__(self) -> Iterator[Item]:
        """Yield the features of each record, or the error of a bad record."""
        raise NotImplementedError
