"""`StoredValues`: values that were put once, and attributes, in the file of a collector.

An attribute of an object that does not exist yet is stored in ``_collector/attributes`` under the name of
that object, so it is durable. It moves to the object when a dataset or value of that name is created, or to a
group of that name when the collector ends.
"""

from __future__ import annotations

from collections.abc import Collection

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import check_name_length
from shardkeep.collector.protocol.values import ROOT, Value, unpack_value
from shardkeep.collector.store.creation import check_new_name, groups_of, schema_errors
from shardkeep.errors import SchemaError
from shardkeep.hdf5.journal.live_view import OWN_GROUP
from shardkeep.hdf5.storage.attributes import Attributes, as_attribute, read_attributes, same_value
from shardkeep.hdf5.storage.names import PUT, check_path

__all__ = ["StoredValues"]

_PENDING = f"{OWN_GROUP}/attributes"
# A str in a set, without its characters.
_NAME_BYTES = 200


class StoredValues:
    """Values and attributes of one file. Changes are part of the next commit.

    Parameters
    ----------
    file : h5py.File
    groups : set of str
        The groups of the file; new ones are added.
    most_bytes : int
        Limit of the memory of one value.

    Attributes
    ----------
    names : set of str
        The names of the values that were put.
    """

    def __init__(self, file: h5py.File, groups: set[str], most_bytes: int) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._groups = groups
        self.names: set[str] = set()
        self._name_bytes = 0
        # Asking HDF5 for each new dataset takes longer than creating it.
        self._has_pending = _PENDING in file

    @property
    def held_bytes(self) -> int:
        """Memory of the names."""
        return self._name_bytes + _NAME_BYTES * len(self.names)

    def add(self, name: str) -> None:
        """Register a value that is in the file."""
        self.names.add(name)
        self._name_bytes += len(name)

    def store(self, data: memoryview, datasets: Collection[str]) -> None:
        """Store the value or attribute that a client sent; `datasets` are the names of those with rows.

        Raises
        ------
        SchemaError
            Another value has that name, the name is not valid, or HDF5 cannot keep the value.
        CollectorError
            The bytes are not a value.
        """
        value = unpack_value(data, self._most_bytes)
        check_name_length(value.name)
        check_name_length(value.on or "")
        with schema_errors(f"HDF5 cannot keep the value {value.name!r}"):
            if value.on is None:
                self._put(value, datasets)
            else:
                self._set_attribute(value, value.on)

    def move_pending_to(self, dataset: h5py.Dataset) -> None:
        """Set the attributes of a new dataset that were sent before it was created."""
        if not self._has_pending:
            return
        name = f"{_PENDING}{dataset.name}"
        if name in self._file:
            _copy_attributes(self._file[name], dataset)
            del self._file[name]

    def finish(self) -> None:
        """Create groups for the attributes of objects that were never created."""
        file = self._file
        if _PENDING not in file:
            return
        pending = file[_PENDING]
        names: list[str] = []
        pending.visititems(lambda name, item: names.append(name) if len(item.attrs) else None)
        for name in names:
            if not self._is_in_dataset(name):
                _copy_attributes(pending[name], file.require_group(name))
        del file[_PENDING]

    def _put(self, value: Value, datasets: Collection[str]) -> None:
        name = value.name
        if name in self.names:
            dataset = self._file[name]
            there = np.empty(dataset.shape, dataset.dtype)
            there[...] = dataset[()]
            if not same_value((there, dataset.dtype), (value.value, value.dtype)):
                message = f"the value {name!r} was put before and was another one"
                raise SchemaError(f"{message}: choose another name, or append rows if it changes")
            return
        check_new_name(name, self._groups, datasets, self.names)
        if self.held_bytes + _NAME_BYTES > self._most_bytes // 4:
            message = f"the collector has no memory for more than {len(self.names):,} values"
            raise SchemaError(f"value {name!r}: {message}: give it more (--memory)")
        if name in datasets:
            raise SchemaError(f"{name!r} is a dataset with rows: choose another name for the value")
        if name in self._file:
            raise SchemaError(f"{name!r} is a group: choose another name for the value")
        dataset = self._file.create_dataset(name, data=value.value, dtype=value.dtype)
        dataset.attrs[PUT] = True
        self.add(name)
        self._groups.update(groups_of(name))
        self.move_pending_to(dataset)

    def _set_attribute(self, value: Value, on: str) -> None:
        if on == ROOT:
            target = self._file
        else:
            check_path(on, "group")
            if self._is_in_dataset(on.rpartition("/")[0]):
                raise SchemaError(f"{on!r} is inside of a dataset: choose the name of a group for it")
            target = self._file[on] if on in self._file else self._pending_group(on)
        size = getattr(value.value, "nbytes", 0)
        if size > self._most_bytes // 16:
            message = f"attribute {value.name!r} of {size:,} bytes is too long for this collector"
            raise SchemaError(f"{message}: give it {size * 64 // 10**6 + 1} MB of memory, or put a value")
        if value.if_none and value.name in target.attrs:
            return
        kept = as_attribute(value.name, value.value)
        there = read_attributes(target)[0].values.get(value.name) if value.name in target.attrs else None
        if there is None or not same_value(there, kept):
            Attributes({value.name: kept}).write(target)

    def _pending_group(self, on: str) -> h5py.Group:
        self._has_pending = True
        return self._file.require_group(f"{_PENDING}/{on}")

    def _is_in_dataset(self, name: str) -> bool:
        """Return whether a dataset has that name, or the name of a group in it."""
        while name:
            if name in self._file:
                return isinstance(self._file[name], h5py.Dataset)
            name = name.rpartition("/")[0]
        return False


def _copy_attributes(source: h5py.Group, target: h5py.Group | h5py.Dataset) -> None:
    read_attributes(source)[0].write(target)
