"""Kind that each file of a folder should have: from its name, its siblings and its content.

A file that is chosen by its content alone cannot be checked when that content is damaged. So the kind of a
data file follows from the first of these that decides:

1. its content, if it begins as a TFRecord or HDF5 file does;
2. the extension of its name;
3. its siblings, the files whose names differ from its name in digits only: the kind of most of them;
4. for a file whose content is unknown, empty, or in the place of data (a page of a failed download, a pointer
   of git-lfs, zero bytes): a name ``-00003-of-00008`` without extension, or most files with its extension;
5. for unknown content: a whole record near its start, or most bytes of the HDF5 signature.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep.files.kinds.data_names import DataKind, is_bare_shard, kind_of_name
from shardkeep.files.kinds.kind import HDF5_SIGNATURE, FileKind, resembles_hdf5
from shardkeep.tfrecord.format.resync import next_frame

__all__ = ["Member", "expected_kinds"]

# A folder may have a hundred thousand files of unknown content; an array of integers takes 5 ms.
_SEARCHED_BYTES = 1 << 17


@dataclass(frozen=True)
class Member:
    """A file, and the kind of its content."""

    path: str
    kind: FileKind

    @property
    def siblings(self) -> tuple[str, ...]:
        """A key that it shares with its siblings: folder, and name with each number as "0"."""
        folder, name = os.path.split(self.path)
        return folder, "name", re.sub(r"[0-9]+", "0", name)

    @property
    def extension(self) -> tuple[str, ...]:
        """A key that it shares with the files of its folder that have its extension."""
        folder, name = os.path.split(self.path)
        return folder, os.path.splitext(name)[1].lower()

    @property
    def is_known(self) -> bool:
        """True if the content is a kind that a user may have stored on purpose."""
        return not (self.kind.may_be_damaged_records or self.kind.stands_in)


def expected_kinds(members: Sequence[Member]) -> list[DataKind | None]:
    """Return for each file which kind of data file it should be; None for another file.

    Siblings are those among the files of the call.
    """
    kinds: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for one in members:
        if one.is_known:
            kinds[one.siblings][one.kind.name] += 1
            kinds[one.extension][one.kind.name] += 1
    return [_expected(one, kinds[one.siblings], kinds[one.extension]) for one in members]


def _expected(one: Member, siblings: Counter[str], extension: Counter[str]) -> DataKind | None:
    content = "tfrecord" if one.kind.is_faulty_tfrecord else _as_data(one.kind.name)
    if content is not None:
        return content
    name = os.path.basename(one.path)
    by_name = kind_of_name(name)
    if by_name is not None:
        return by_name
    if siblings:
        return _most(siblings)
    if one.is_known:
        return None
    if is_bare_shard(name):
        return "tfrecord"
    most = _most(extension) if one.extension[1] else None
    if most is None and one.kind.may_be_damaged_records:
        return _in_content(one.path)
    return most


def _as_data(name: str) -> DataKind | None:
    return "tfrecord" if name == "tfrecord" else "hdf5" if name == "hdf5" else None


def _most(kinds: Counter[str]) -> DataKind | None:
    """Return the kind of more than half of the files."""
    for name, count in kinds.most_common(1):
        if 2 * count > kinds.total():
            return _as_data(name)
    return None


def _in_content(path: str) -> DataKind | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if resembles_hdf5(os.pread(fd, len(HDF5_SIGNATURE), 0)):
            return "hdf5"
        return None if next_frame(fd, 0, until_bytes=_SEARCHED_BYTES) is None else "tfrecord"
    except OSError:
        return None
    finally:
        os.close(fd)
