"""Values of variable length of a damaged file, read from its global heaps without HDF5.

A value is stored as its length, the address of a heap and the number of an object in it. Nothing of that has
a checksum. Format: HDF5 File Format Specification 4.0, section III.E.
"""

from __future__ import annotations

import functools
from typing import Any

import h5py
import numpy as np

from shardkeep.jobs.salvage.hdf5.attributes import stored_size
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile

__all__ = ["GlobalHeaps"]

_HEAD_BYTES = 16
_MOST_BYTES = 1 << 30


class GlobalHeaps:
    """Global heaps of a file.

    Parameters
    ----------
    raw : PatchedFile
    base : int
        The offset from which addresses count.
    """

    def __init__(self, raw: PatchedFile, base: int) -> None:
        self._raw, self._base = raw, base
        self._objects = functools.lru_cache(maxsize=64)(self._read)

    def values(self, kind: Any, stored: bytes, shape: tuple[int, ...]) -> Any:
        """Return values from their stored bytes, as h5py reads them.

        Raises
        ------
        ValueError
            An object is not in its heap, or is shorter than the value.
        """
        values = np.empty(shape, kind.dtype)
        size = stored_size(kind)
        flat = values.reshape(-1)
        for number in range(flat.size):
            flat[number] = self._value(kind, stored[number * size : (number + 1) * size])
        return values

    def _value(self, kind: Any, stored: bytes) -> Any:
        if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
            return self._content(stored, 1)
        if isinstance(kind, h5py.h5t.TypeVlenID):
            base = kind.get_super()
            size = stored_size(base)
            content = self._content(stored, size)
            return self.values(base, content, (len(content) // size,))
        if isinstance(kind, h5py.h5t.TypeCompoundID):
            fields, at, end = [], 0, 0
            for number in range(kind.get_nmembers()):
                member = kind.get_member_type(number)
                # In memory, members of variable length are smaller; gaps between members stay.
                at += kind.get_member_offset(number) - end
                end = kind.get_member_offset(number) + int(member.get_size())
                size = stored_size(member)
                fields.append(self._value(member, stored[at : at + size]))
                at += size
            return tuple(fields)
        if isinstance(kind, h5py.h5t.TypeArrayID):
            return self.values(kind.get_super(), stored, kind.get_array_dims())
        return np.frombuffer(stored, kind.dtype, 1)[0]

    def _content(self, stored: bytes, item_bytes: int) -> bytes:
        length = int.from_bytes(stored[:4], "little") * item_bytes
        address, index = int.from_bytes(stored[4:12], "little"), int.from_bytes(stored[12:16], "little")
        if not length:
            return b""
        place = self._objects(address).get(index)
        if place is None or place[1] < length:
            raise ValueError("its global heap is damaged")
        content = self._raw.read_at(place[0], length)
        if len(content) < length:
            raise ValueError("the file ends before it")
        return content

    def _read(self, address: int) -> dict[int, tuple[int, int]]:
        """Return offset and size of each object of a heap."""
        at = self._base + address
        head = self._raw.read_at(at, _HEAD_BYTES)
        if head[:5] != b"GCOL\x01":
            return {}
        end = at + min(int.from_bytes(head[8:16], "little"), _MOST_BYTES)
        at += _HEAD_BYTES
        objects = {}
        while at + _HEAD_BYTES <= end:
            head = self._raw.read_at(at, _HEAD_BYTES)
            index, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8:16], "little")
            at += _HEAD_BYTES
            if not index or at + size > end:
                break
            objects[index] = (at, size)
            at += -(-size // 8) * 8
        return objects
