"""What every source of `pack` is: something that gives the features of one record after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardkeep.errors import ShardkeepError

__all__ = ["Item", "PackSource"]

# The features of a record, or what is wrong with it.
Item = dict[str, Any] | ShardkeepError


class PackSource:
    """Files, or arrays in memory, that become records; iterated once.

    Attributes
    ----------
    kind : str
        "images", "csv", "parquet", "arrow", "numpy" or "webdataset".
    paths : tuple of str
    features : dict of str to str
        Name to "int64", "float32" or "bytes"; complete after the iteration.
    labels : dict of str to int, or None
    notes : list of str
        What a person should know about how values are stored.
    total_bytes, done_bytes : int
        How much there is to read, and how much has been.
    """

    kind = ""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self.features: dict[str, str] = {}
        self.labels: dict[str, int] | None = None
        self.notes: list[str] = []
        self.total_bytes = 0
        self.done_bytes = 0

    def __iter__(self) -> Iterator[Item]:
        """Yield the features of each record, or the error that tells why there are none."""
        raise NotImplementedError
