"""One source of a virtual dataset: checked and read through HDF5."""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, NotFoundError, SchemaError, ShardkeepError
from shardkeep.hdf5.h5py_private import close_file
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.reading import open_for_reading
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5
from shardkeep.hdf5.storage.casts import fits
from shardkeep.hdf5.storage.chunk_table import contiguous_offset
from shardkeep.hdf5.virtual.layout import is_virtual

if TYPE_CHECKING:
    from shardkeep.hdf5.virtual.sources import VirtualSources

__all__ = ["Owner", "VirtualSource"]

_CACHE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Owner:
    """A virtual dataset, as its sources have to know it.

    Attributes
    ----------
    path : str
        Absolute path of its file.
    name : str
    dtype : dtype
    stored : h5py.h5t.TypeID
        The same as HDF5 has it in the file.
    as_in_memory : bool
        Whether values lie in a file of that type as they do in an array of that dtype.
    open_file : callable
        Opens a source by its absolute path (`shardkeep.hdf5.open.file.open_source_file`).
    """

    path: str
    name: str
    dtype: np.dtype[Any]
    stored: h5py.h5t.TypeID
    as_in_memory: bool
    open_file: Callable[[str], h5py.File]


class VirtualSource:
    """A dataset of another file; what is known of it is in the arrays of `VirtualSources`.

    Parameters
    ----------
    sources : VirtualSources
    number : int
        Which of them it is.
    dataset : bytes
    """

    __slots__ = ("_file", "_number", "_owner", "_sources", "name")

    def __init__(self, sources: VirtualSources, number: int, dataset: bytes) -> None:
        self._sources = sources
        self._number = number
        self._owner = sources.owner
        self.name = os.fsdecode(dataset)
        self._file: h5py.File | None = None

    @property
    def path(self) -> str:
        """The path of the file."""
        return os.fsdecode(self._sources.files.get(self._number)[0])

    @property
    def signature(self) -> FileVersion | None:
        """Of the file when it was last checked."""
        state = self._sources.files.get(self._number)[1]
        return None if state is None else FileVersion(*state)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the dataset then."""
        dimensions = int(self._sources.dimensions[self._number])
        return tuple(self._sources.shapes[self._number, :dimensions].tolist())

    def look(self) -> None:
        """Raise unless the file can be read, and has a dataset with a type that fits."""
        status = self._status()
        if self.signature != status:
            self._examine(status)

    def refuse(self, bounds: tuple[int, ...] | None, values: int) -> NoReturn:
        """Raise because its dataset is too small, or not as large as what is mapped to all of it.

        Parameters
        ----------
        bounds : tuple of int or None
            What is needed of it; None if it is all.
        values : int
            How many values are mapped.
        """
        if bounds is not None:
            message = f"{self._told()} has shape {self.shape}, and {bounds} is needed of it"
            raise CorruptDataError(f"{message}: restore it from a copy", path=self.path)
        size = math.prod(self.shape)
        message = f"{self._told()} has {size} values (shape {self.shape}), and {values} are taken from it"
        raise CorruptDataError(f"{message}: restore it from a copy, or merge again", path=self.path)

    def open(self) -> h5py.File:
        """Return a handle of the file."""
        if self._file is None:
            with self._context():
                self._file = self._owner.open_file(self.path)
        return self._file

    def read_into(self, target: np.ndarray[Any, Any], parts: tuple[Any, ...]) -> None:
        """Read a selection, one slice or list per axis, into an array of as many values."""
        if self._status() != self.signature:
            self._forget()
            self.look()
            bounds = _ends(parts)
            if len(self.shape) != len(bounds) or any(n < m for n, m in zip(self.shape, bounds, strict=True)):
                self.refuse(bounds, 0)
        with self._context():
            dataset = self.open()[self.name]
            if target.dtype.hasobject or not target.flags.c_contiguous:
                target[...] = dataset[parts].reshape(target.shape)
            else:
                dataset.read_direct(target.reshape(_lengths(parts)), source_sel=parts)

    def close(self) -> None:
        """Close the handle of the file, if there is one; it is opened again when it is needed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def changed(self) -> None:
        """Raise because the file was changed while it was read."""
        raise CorruptDataError(f"{self._told()} was changed while it was read: read it again", path=self.path)

    def _status(self) -> FileVersion:
        try:
            return FileVersion.of(os.stat(self.path))
        except FileNotFoundError:
            message = f"{self._told()} is not there: it was moved or removed; bring it back, or merge again"
            raise NotFoundError(message, path=self.path) from None
        except OSError as error:
            raise self._denied(error) from None

    def _examine(self, status: FileVersion) -> None:
        if not len(self._sources.take_merged(np.array([self._number], np.int64))):
            return
        path = self.path
        with self._context():
            file_id, _, _ = open_for_reading(path, path, 0.0, _CACHE_BYTES, {})
            try:
                nested = self._examine_dataset(file_id)
            except BaseException:
                close_file(file_id)
                raise
            file_id.close()
        if nested:
            self.check_nested()
        self._sources.files.set(self._number, os.fsencode(path), status[:4])

    def check_nested(self) -> None:
        """Look at the sources of a dataset that is virtual itself."""
        with self._context():
            self.open()[self.name].check_sources()

    def _examine_dataset(self, file_id: h5py.h5f.FileID) -> bool:
        try:
            dataset = h5py.h5d.open(file_id, self.name.encode("utf-8", "surrogateescape"))
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            message = f"{self._told()} has no such dataset ({first_line(error)}): restore it, or merge again"
            raise SchemaError(message, path=self.path) from None
        owner = self._owner
        equal = dataset.get_type() == owner.stored
        if not (equal or fits(dataset.dtype, owner.dtype)):
            message = f"{self._told()} has type {dataset.dtype}, which does not fit into {owner.dtype}"
            raise SchemaError(f"{message}: HDF5 would change its values; merge again", path=self.path)
        layout = dataset.get_create_plist()
        plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
        offset_bytes = contiguous_offset(dataset) if plain and equal and owner.as_in_memory else None
        nested = is_virtual(layout)
        self._sources.put(self._number, dataset.shape, offset_bytes=offset_bytes, nested=nested)
        return nested

    def _forget(self) -> None:
        self._sources.files.set(self._number, os.fsencode(self.path), None)
        self.close()

    def _told(self) -> str:
        return f"{self.name!r} of {self.path!r}, a source of {self._owner.name!r} of {self._owner.path!r},"

    def _denied(self, error: OSError) -> CorruptDataError:
        code = errno.errorcode.get(error.errno or 0, str(error.errno))
        message = f"{self._told()} cannot be read ({code}): get the right to read it, then open it again"
        return CorruptDataError(message, path=self.path)

    @contextlib.contextmanager
    def _context(self) -> Any:
        try:
            yield
        except PermissionError as error:
            raise self._denied(error) from None
        except ShardkeepError as error:
            if self._owner.path in str(error):
                raise
            of = f"a source of {self._owner.name!r} of {self._owner.path!r}"
            told = type(error)(f"{of}: {error}", path=self.path)
            told.__dict__.update({k: v for k, v in error.__dict__.items() if k != "path"})
            raise told from error
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            message = f"{self._told()} cannot be read ({first_line(error)}): restore it from a copy"
            raise CorruptDataError(message, path=self.path) from error


def _lengths(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(
        len(range(0, one.stop - one.start, one.step)) if isinstance(one, slice) else len(one) for one in parts
    )


def _ends(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(one.stop if isinstance(one, slice) else int(one[-1]) + 1 for one in parts)
