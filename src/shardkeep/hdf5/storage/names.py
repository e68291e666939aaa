"""Names in an HDF5 file: which a dataset may have, and which objects and attributes are Shardkeep's own.

A merged file has the tables ``_checks``, ``_provenance`` and ``_receipts``, the file of a collector the group
``_collector``, a segment the dataset ``_commit``. Another object under one of these names belongs to a user:
a merge cannot keep it and reports it.
"""

from __future__ import annotations

from collections.abc import Iterable

import h5py

from shardkeep.errors import SchemaError

__all__ = [
    "OWN_ATTRIBUTES",
    "PUT",
    "RANKS",
    "RESERVED",
    "check_name",
    "check_path",
    "decode_name",
    "encode_name",
    "is_own_table",
    "is_reserved",
    "is_unicode",
    "own_names",
    "shown_name",
]

PUT = "_put"
"""Attribute of a dataset that was written once, by `WorkerFile.put`, and has no row axis."""
RANKS = "_ranks"
"""Attribute of a merged dataset with one row per rank: the rank of each row."""
OWN_ATTRIBUTES = (PUT, RANKS)
RESERVED = "has a name that Shardkeep uses itself"

_TABLES = ("_checks", "_commit", "_provenance", "_receipts")
_RESERVED_NAMES = (*_TABLES, "_collector")
_FIELDS = {
    "_checks": {b"dataset", b"first_row", b"rows", b"way", b"crc32c"},
    "_provenance": {b"rank", b"step", b"dataset", b"file", b"first_row", b"rows", b"source_row"},
    "_collector/clients": {b"id", b"rank", b"world_size", b"sequence", b"rows", b"closed"},
}
_IN_COLLECTOR_GROUP = ("attributes", "clients", "tails", "writers")


def check_name(name: object, others: Iterable[str]) -> str:
    """Return the name of a dataset if it may be created next to `others`.

    Parts between "/" become groups.

    Raises
    ------
    SchemaError
        HDF5 does not keep the name as it is, it is reserved, or it would be a group and a dataset at once.
    """
    path = check_path(name, "dataset")
    for other in others:
        if other.startswith(f"{path}/") or path.startswith(f"{other}/"):
            raise SchemaError(f"{name!r} and {other!r} would be a dataset and a group at once: rename one")
    return path


def check_path(name: object, what: str) -> str:
    """Return the name of an object if HDF5 keeps it as it is; errors call the object `what`."""
    if not isinstance(name, str):
        raise SchemaError(f"the name of a {what} must be a str, not {type(name).__name__}")
    if not is_unicode(name):
        raise SchemaError(f"{name!r} is not Unicode text: choose another name of a {what}")
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        message = f"{name!r} cannot be the name of a {what}"
        raise SchemaError(f'{message}: use parts joined by single "/", none of them "." or ".."')
    if is_reserved(name):
        raise SchemaError(f"{name!r} is used by Shardkeep itself: choose another name")
    return name


def is_reserved(name: str) -> bool:
    """Return whether Shardkeep reserves the name of an object or of its outermost group.

    Examples
    --------
    >>> is_reserved("_collector/clients"), is_reserved("collector/x")
    (True, False)
    """
    return name.split("/", 1)[0] in _RESERVED_NAMES


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text; it cannot encode a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_name(name: str) -> bytes:
    """Return a name as HDF5 has it; surrogates are bytes that are not UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def decode_name(name: bytes) -> str:
    """Return a name of HDF5 as a str, as `encode_name`."""
    return name.decode("utf-8", "surrogateescape")


def shown_name(name: str) -> str:
    r"""Return a name in quotes for messages.

    Examples
    --------
    >>> print(shown_name("x"), shown_name(decode_name(b"Temp\xe9")))
    'x' b'Temp\xe9'
    """
    return repr(name) if is_unicode(name) else repr(encode_name(name))


def own_names(file: h5py.h5f.FileID, names: Iterable[str]) -> set[str]:
    """Return those of some reserved names, as HDF5 visits them, whose objects are Shardkeep's own."""
    present = set(names)
    own = {name for name in _TABLES if name in present and is_own_table(file, name)}
    if "_provenance" not in own:
        own.discard("_receipts")  # its type is text, which any dataset may have
    if "_collector/clients" in present and is_own_table(file, "_collector/clients"):
        own |= {name for name in present if _is_of_collector(name)}
    return own


def is_own_table(file: h5py.h5f.FileID, name: str) -> bool:
    """Return whether an existing object has the type of Shardkeep's table of that name."""
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
    return first == "_collector" and (not others or others[0] in _IN_COLLECTOR_GROUP)
