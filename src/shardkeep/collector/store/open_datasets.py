"""`OpenDatasets`: the datasets that are in use, and what they keep in memory, under one limit.

Of thousands of datasets only those that rows came for lately are open in HDF5 and have a chunk, text or
places of rows in memory. The others are a name, a type and a few numbers.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

__all__ = ["OPEN_BYTES", "OpenDatasets"]

OPEN_BYTES = 16 * 1024
"""What HDF5 and h5py keep of an open dataset (measured: 13 KB)."""


class _Closes(Protocol):
    def close(self) -> None:
        """Keep nothing that can be read again."""


class OpenDatasets:
    """Counts what datasets keep in memory, and closes those that were used longest ago.

    Parameters
    ----------
    most_bytes : int
        For all of them; the one that is in use may take more.

    Attributes
    ----------
    bytes : int
    unsaved_bytes : int
        Of them, those that the next commit adds to what waits to be written.

    Examples
    --------
    >>> class Dataset:
    ...     def close(self): print("closed")
    >>> datasets = OpenDatasets(100)
    >>> datasets.use(Dataset(), 60)
    >>> datasets.use(Dataset(), 60)
    closed
    >>> datasets.bytes
    60
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.bytes = self.unsaved_bytes = 0
        self._sizes: OrderedDict[_Closes, int] = OrderedDict()

    def use(self, one: _Closes, size: int) -> None:
        """Note that a dataset is used, and keeps so many bytes."""
        self.bytes += size - self._sizes.pop(one, 0)
        self._sizes[one] = size
        while self.bytes > self.most_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.leave(oldest)
            oldest.close()

    def leave(self, one: _Closes) -> None:
        """Note that a dataset keeps nothing."""
        self.bytes -= self._sizes.pop(one, 0)
