"""Objects of a file that are Shardkeep's own, and those of a user that only have such a name.

A merged file has the tables ``_checks``, ``_provenance`` and ``_receipts``, the file of a collector the group
``_collector``. Any other object under these names is the user's: a merge cannot keep it, and must name it.
"""

from __future__ import annotations

from collections.abc import Iterable

import h5py

from shardkeep.hdf5.storage.attributes import PUT, RANKS

__all__ = ["OWN_ATTRIBUTES", "RESERVED", "is_own_table", "own_names"]

OWN_ATTRIBUTES = (PUT, RANKS)
RESERVED = "has a name that Shardkeep uses itself"

_FIELDS = {
    "_checks": {b"dataset", b"first_row", b"rows", b"way", b"crc32c"},
    "_provenance": {b"rank", b"step", b"dataset", b"file", b"first_row", b"rows", b"source_row"},
    "_collector/clients": {b"id", b"rank", b"world_size", b"sequence", b"rows", b"closed"},
}
_OF_COLLECTOR = ("attributes", "clients", "tails", "writers")


def own_names(file: h5py.h5f.FileID, names: Iterable[str]) -> set[str]:
    """Return those of some reserved names, as HDF5 visits them, that are Shardkeep's own."""
    given = set(names)
    tables = ("_checks", "_commit", "_provenance", "_receipts")
    own = {name for name in tables if name in given and is_own_table(file, name)}
    if "_provenance" not in own:
        own.discard("_receipts")  # which any text may be
    if "_collector/clients" in given and is_own_table(file, "_collector/clients"):
        own |= {name for name in given if _is_of_collector(name)}
    return own


def is_own_table(file: h5py.h5f.FileID, name: str) -> bool:
    """Whether an object that is there has the type of Shardkeep's table of that name."""
    try:
        item = h5py.h5o.open(file, name.encode())
        if not isinstance(item, h5py.h5d.DatasetID):
            return False
        kind = item.get_type()
        if name not in _FIELDS:
            return isinstance(kind, h5py.h5t.TypeStringID)
        if not isinstance(kind, h5py.h5t.TypeCompoundID):
            return False
        return _FIELDS[name] <= {kind.get_member_name(number) for number in range(kind.get_nmembers())}
    except (KeyError, OSError, RuntimeError):
        return True  # damaged: the code that reads it raises


def _is_of_collector(name: str) -> bool:
    first, *others = name.split("/")
    return first == "_collector" and (not others or others[0] in _OF_COLLECTOR)
