"""The virtual datasets of the files that were opened last: opening one again costs a ``stat`` per source.

To open a dataset of 4,000 mappings and read them takes HDF5 and h5py as long as to read the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shardkeep.hdf5.virtual.dataset import VirtualDataset
from shardkeep.hdf5.virtual.source import Signature

__all__ = ["KnownFile", "KnownVirtuals", "known_virtuals"]

_MOST_KNOWN = 8


@dataclass
class KnownFile:
    """What is known of a file in one state.

    Attributes
    ----------
    datasets : dict of str to VirtualDataset
        Its virtual datasets, by path.
    seen : tuple of str or None
        The paths of those that are checked whenever it is opened; None if nobody has looked.
    """

    datasets: dict[str, VirtualDataset] = field(default_factory=dict)
    seen: tuple[str, ...] | None = None


class KnownVirtuals:
    """Files by path and state; the one that was not asked for longest goes first."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, Signature], KnownFile] = {}

    def get(self, path: str, state: Signature) -> KnownFile | None:
        """Return what is known of a file."""
        found = self._files.pop((path, state), None)
        if found is not None:
            self._files[path, state] = found
        return found

    def add(self, path: str, state: Signature) -> KnownFile:
        """Return what is known of a file, to be added to."""
        found = self.get(path, state)
        if found is None:
            found = self._files[path, state] = KnownFile()
            if len(self._files) > _MOST_KNOWN:
                del self._files[next(iter(self._files))]
        return found


known_virtuals = KnownVirtuals()
