"""The new file of a salvage, or without a path a file in memory that gets no rows."""

from __future__ import annotations

import json
from typing import Any

import h5py

__all__ = ["REPORT", "Target"]

REPORT = "shardkeep_repair"
"""Attribute of a dataset and of the root of a repaired file: the places that were lost, as JSON."""


class Target:
    """A new HDF5 file.

    Parameters
    ----------
    path : str or None
    version : int
        Version of the superblock of the damaged file.
    user_block_bytes : int
    """

    def __init__(self, path: str | None, version: int, user_block_bytes: int) -> None:
        low = {0: "earliest", 1: "earliest", 2: "v108"}.get(version, "v110")
        options: dict[str, Any] = {"libver": (low, "latest"), "rdcc_nbytes": 0}
        if path is None:
            options |= {"driver": "core", "backing_store": False}
        elif user_block_bytes:
            options["userblock_size"] = user_block_bytes
        self.writes = path is not None
        self.file = h5py.File(path or "salvage", "w", **options)

    def note(self, item: Any, places: list[dict[str, Any]]) -> None:
        """Describe what was lost of an object in its attribute."""
        if self.writes and places:
            owner = h5py.Dataset(item) if isinstance(item, h5py.h5d.DatasetID) else h5py.Group(item)
            owner.attrs[REPORT] = json.dumps(places)
