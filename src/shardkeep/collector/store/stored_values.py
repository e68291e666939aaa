"""`StoredValues`: what was put once, and attributes, in the file of a collector.

An attribute of an object that is not there yet waits in ``_collector/attributes`` under the name of
that object, so it is durable; it moves when a dataset or value of that name is made, or, if none is,
to a group at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import check_name_length
from shardkeep.collector.protocol.values import ROOT, Value, unpack_value
from shardkeep.collector.store.all_or_nothing import groups_of
from shardkeep.errors import SchemaError
from shardkeep.hdf5.journal.live_view import OWN_GROUP
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.attributes import Attributes, as_attribute, read_attributes, same_value
from shardkeep.hdf5.storage.names import PUT, check_name, check_path

__all__ = ["StoredValues"]

_WAITING = f"{OWN_GROUP}/attributes"
# A str in a set, beside its characters.
_NAME_BYTES = 200


class StoredValues:
    """Values and attributes of one file; what is changed belongs to the next commit.

    Parameters
    ----------
    file : h5py.File
    groups : set of str
        Those in the file; it is kept up.
    most_bytes : int
        Memory that one value may take.

    Attributes
    ----------
    names : set of str
        Of what was put.
    """

    def __init__(self, file: h5py.File, groups: set[str], most_bytes: int) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._groups = groups
        self.names: set[str] = set()
        self._name_bytes = 0
        # Asking HDF5 for each new dataset takes longer than to make it.
        self._are_waiting = _WAITING in file

    @property
    def held_bytes(self) -> int:
        """Memory that the names take."""
        return self._name_bytes + _NAME_BYTES * len(self.names)

    def add(self, name: str) -> None:
        """Note a value that is in the file."""
        self.names.add(name)
        self._name_bytes += len(name)

    def take(self, data: memoryview, datasets: Any) -> None:
        """Store what a client sent; `datasets` are the names of those that have rows.

        Raises
        ------
        SchemaError
            Another value was put under that name, the name is of no use, or HDF5 keeps no such value.
        CollectorError
            It makes no sense.
        """
        value = unpack_value(data, self._most_bytes)
        check_name_length(value.name)
        check_name_length(value.on or "")
        try:
            if value.on is None:
                self._put(value, datasets)
            else:
                self._set(value)
        except (TypeError, ValueError, RuntimeError, OSError, KeyError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"{value.name!r}: HDF5 cannot keep this value ({first_line(error)})") from error

    def check_free(self, name: str) -> None:
        """Raise `SchemaError` if a dataset with rows cannot have that name."""
        if name in self.names:
            raise SchemaError(f"{name!r} is a value that was put once: choose another name for rows")
        self._check_name(name, self.names)

    def settle_on(self, item: h5py.Dataset) -> None:
        """Give a new dataset the attributes that wait for it."""
        if not self._are_waiting:
            return
        place = f"{_WAITING}{item.name}"
        if place in self._file:
            self._move(self._file[place], item)
            del self._file[place]

    def finish(self) -> None:
        """Make groups of what no dataset was made for."""
        file = self._file
        if _WAITING not in file:
            return
        waiting = file[_WAITING]
        names: list[str] = []
        waiting.visititems(lambda name, item: names.append(name) if len(item.attrs) else None)
        for name in names:
            if not self._is_in_the_way(name):
                self._move(waiting[name], file.require_group(name))
        del file[_WAITING]

    # -- inside --------------------------------------------------------------------------------------------

    def _put(self, value: Value, datasets: Any) -> None:
        name = value.name
        if name in self.names:
            dataset = self._file[name]
            there = np.empty(dataset.shape, dataset.dtype)
            there[...] = dataset[()]
            if not same_value((there, dataset.dtype), (value.value, value.dtype)):
                message = f"the value {name!r} was put before and was another one"
                raise SchemaError(f"{message}: choose another name, or append rows if it changes")
            return
        self._check_name(name, datasets, self.names)
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
        self.settle_on(dataset)

    def _check_name(self, name: str, *others: Collection[str]) -> None:
        # By sets: each of many thousands is compared with all before it.
        groups = groups_of(name)
        if name in self._groups or any(group in names for names in others for group in groups):
            check_name(name, [one for names in others for one in names])
        else:
            check_name(name, ())

    def _set(self, value: Value) -> None:
        on = value.on
        if on == ROOT:
            target = self._file
        else:
            check_path(on, "group")
            assert on is not None
            if self._is_in_the_way(on.rpartition("/")[0]):
                raise SchemaError(f"{on!r} is inside of what is no group: choose another name")
            target = self._file[on] if on in self._file else self._wait(on)
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

    def _wait(self, on: str) -> h5py.Group:
        self._are_waiting = True
        return self._file.require_group(f"{_WAITING}/{on}")

    def _is_in_the_way(self, name: str) -> bool:
        """Whether a dataset has that name, or a part of it."""
        while name:
            if name in self._file:
                return isinstance(self._file[name], h5py.Dataset)
            name = name.rpartition("/")[0]
        return False

    def _move(self, source: h5py.Group, target: h5py.Group | h5py.Dataset) -> None:
        read_attributes(source)[0].write(target)
