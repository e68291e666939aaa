"""Names by which programs and users recognise data files."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["DataKind", "is_bare_shard", "kind_of_name"]

DataKind = Literal["tfrecord", "hdf5"]

_COMPRESSED = r"(?:\.(?:gz|gzip|zz|zlib|zst|zstd))?"
_OF = r"[-_][0-9]+[-_]of[-_][0-9]+"
_TFRECORD = re.compile(
    rf".*\.(?:tf_?records?|tfrec|tfr){_COMPRESSED}(?:{_OF})?{_COMPRESSED}|.*tfevents\.[0-9].*", re.I | re.S
)
_HDF5 = re.compile(r".*\.(?:h5|hdf5|he5|h5ad|h5mu|loom)", re.I | re.S)
_BARE_OF = re.compile(rf"[^.]*{_OF}", re.S)


def kind_of_name(name: str) -> DataKind | None:
    """Return the kind that the extension of a file name stands for; None for all others.

    Examples
    --------
    >>> kind_of_name("train.tfrecord-00000-of-00004"), kind_of_name("all.h5"), kind_of_name("a.txt")
    ('tfrecord', 'hdf5', None)
    """
    if _TFRECORD.fullmatch(name):
        return "tfrecord"
    return "hdf5" if _HDF5.fullmatch(name) else None


def is_bare_shard(name: str) -> bool:
    """Return True for the name of a shard without extension, such as ``train-00000-of-00004``."""
    return _BARE_OF.fullmatch(name) is not None
