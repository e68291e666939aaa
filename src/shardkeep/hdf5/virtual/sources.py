"""Sources of a virtual dataset: their states, checks and rows.

There may be thousands of them, so their states are arrays, which the Rust half processes at once. A source
gets an object (`VirtualSource`) only when HDF5 has to open it, or for an error.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep._core import KnownFiles
from shardkeep.errors import CorruptDataError, NotFoundError, SchemaError, ShardkeepError
from shardkeep.hdf5.h5py_private import close_file
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.locking.reading import open_for_reading
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5, is_unsupported
from shardkeep.hdf5.storage.casts import fits
from shardkeep.hdf5.storage.chunk_table import contiguous_offset
from shardkeep.hdf5.storage.names import encode_name
from shardkeep.hdf5.virtual.checked_sources import layout_digest, states_of
from shardkeep.hdf5.virtual.layout import VirtualLayout, is_virtual
from shardkeep.hdf5.virtual.source_search import SourceSearch, dangling_link

__all__ = ["VirtualSource", "VirtualSources"]

_CACHE_BYTES = 1024 * 1024
_MOST_DIMENSIONS = 32  # H5S_MAX_RANK

_Numbers = npt.NDArray[np.int64]


class VirtualSources:
    """All sources of one virtual dataset, by number.

    Parameters
    ----------
    path, name : str
        The virtual dataset, and the absolute path of its file.
    layout : VirtualLayout
    table : ndarray or None
        Table of a merge about the sources (`shardkeep.hdf5.virtual.checked_sources`).
    open_file : callable
        Opens a source by its absolute path (`shardkeep.hdf5.open.file.open_source_file`).

    Attributes
    ----------
    dtype : dtype
    stored : h5py.h5t.TypeID
        Its type in the file of the virtual dataset.
    as_in_memory : bool
        Whether values of that type have the same bytes in a file as in an array of that dtype.
    files : KnownFiles
        Paths, and the versions in which the files were checked. The arrays below are of that time.
    dimensions : ndarray of int64, shape (sources,)
        Numbers of dimensions of the datasets.
    shapes : ndarray of int64, shape (sources, 32)
        Beyond the dimensions there are ones.
    offsets_bytes : ndarray of int64, shape (sources,)
        Offsets of rows that are contiguous in the file with the same bytes as in memory; -1 for others.
    nested : ndarray of bool, shape (sources,)
        Whether the datasets are virtual themselves.
    """

    def __init__(
        self,
        path: str,
        name: str,
        layout: VirtualLayout,
        table: np.ndarray[Any, Any] | None,
        open_file: Callable[[str], h5py.File],
    ) -> None:
        count = len(layout.files)
        self.path, self.name, self.layout, self.open_file = path, name, layout, open_file
        self.stored, self.dtype = layout.stored, layout.stored.dtype
        self.as_in_memory = (
            not self.dtype.hasobject
            and self.dtype.itemsize > 0
            and bool(h5py.h5t.py_create(self.dtype, logical=True) == layout.stored)
        )
        self._search: SourceSearch | None = SourceSearch(path, merged=table is not None)
        self.files = KnownFiles([self._search.first(name) for name in layout.files])
        self.dimensions = np.zeros(count, np.int64)
        self.shapes: _Numbers = np.ones((_MOST_DIMENSIONS, count), np.int64).T
        self.offsets_bytes = np.full(count, -1, np.int64)
        self.nested = np.zeros(count, bool)
        self._merged = states_of(
            table,
            encode_name(name.lstrip("/")),
            layout_digest(layout.shape, layout.stored),
            layout.files,
            layout.datasets,
        )
        self._objects: dict[int, VirtualSource] = {}

    def __len__(self) -> int:
        return len(self.layout.files)

    def __getitem__(self, number: int) -> VirtualSource:
        found = self._objects.get(number)
        if found is None:
            found = self._objects[number] = VirtualSource(self, number, self.layout.datasets[number])
        return found

    def check(self, changed: _Numbers) -> None:
        """Check the sources that have changed (`KnownFiles.changed`), and the sources of nested ones.

        Raises
        ------
        ShardkeepError
            One is missing, cannot be read, or has no such dataset, or one of another type.
        """
        left = self.take_merged(changed)
        if self._search is not None:
            search, self._search = self._search, None
            moved = [number for number in left.tolist() if self._find(number, search)]
            if moved:
                self.take_merged(np.array(moved, np.int64))
        self.check_nested(but=changed)
        for number in left.tolist():
            self[number].check()

    def check_nested(self, but: _Numbers | Sequence[int] = ()) -> None:
        """Check the sources of the sources that are virtual themselves."""
        if self.nested.any():
            for number in np.setdiff1d(np.flatnonzero(self.nested), but).tolist():
                self[number].check_nested()

    def take_merged(self, numbers: _Numbers) -> _Numbers:
        """Accept sources that are unchanged since the merge and can be read; return the others."""
        merged = self._merged
        known = merged["size_bytes"][numbers] >= 0
        wanted = numbers[known]
        if not len(wanted):
            return numbers
        lock = locking_mode().effect != "off"
        missed = self.files.take(wanted, merged["size_bytes"][wanted], merged["mtime_ns"][wanted], lock=lock)
        taken = np.delete(wanted, missed)
        row_shape = self.layout.shape[1:]
        width = 1 + len(row_shape)
        self.dimensions[taken] = width
        self.shapes[taken, 0] = merged["rows"][taken]
        self.shapes[taken, 1:width] = row_shape
        self.shapes[taken, width:] = 1
        self.offsets_bytes[taken] = merged["offset_bytes"][taken] if self.as_in_memory else -1
        self.nested[taken] = False
        return np.sort(np.concatenate([numbers[~known], wanted[missed]]))

    def put(self, number: int, shape: Sequence[int], *, offset_bytes: int | None, nested: bool) -> None:
        """Store the result of a check."""
        self.dimensions[number] = len(shape)
        self.shapes[number] = 1
        self.shapes[number, : len(shape)] = shape
        self.offsets_bytes[number] = -1 if offset_bytes is None else offset_bytes
        self.nested[number] = nested

    def close(self) -> None:
        """Close all open handles, so that the locks of the sources are free."""
        for source in self._objects.values():
            source.close()

    def _find(self, number: int, search: SourceSearch) -> bool:
        """Search a source in all places; return whether it is not in the first one."""
        path = search.find(self.layout.files[number])
        before, state = self.files.get(number)
        if path == before:
            return False
        self.files.set(number, path, state)
        return True


class VirtualSource:
    """One source, which is checked and read through HDF5; its state is in the arrays of `VirtualSources`."""

    __slots__ = ("_file", "_number", "_sources", "name")

    def __init__(self, sources: VirtualSources, number: int, dataset: bytes) -> None:
        self._sources = sources
        self._number = number
        self.name = os.fsdecode(dataset)
        self._file: h5py.File | None = None

    @property
    def path(self) -> str:
        """The path of the file."""
        return os.fsdecode(self._sources.files.get(self._number)[0])

    @property
    def version(self) -> FileVersion | None:
        """The version of the file at the last check."""
        state = self._sources.files.get(self._number)[1]
        return None if state is None else FileVersion(*state)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the dataset at the last check."""
        dimensions = int(self._sources.dimensions[self._number])
        return tuple(self._sources.shapes[self._number, :dimensions].tolist())

    def check(self) -> None:
        """Raise unless the file can be read and has a dataset with a type that fits."""
        version = self._current_version()
        if self.version == version or not len(self._sources.take_merged(np.array([self._number], np.int64))):
            return
        path = self.path
        with self._errors_with_context():
            file_id, _, _ = open_for_reading(path, path, 0.0, _CACHE_BYTES, {})
            try:
                nested = self._check_dataset(file_id)
            except BaseException:
                close_file(file_id)
                raise
            file_id.close()
        if nested:
            self.check_nested()
        self._sources.files.set(self._number, os.fsencode(path), version[:4])

    def check_nested(self) -> None:
        """Check the sources of a dataset that is virtual itself."""
        with self._errors_with_context():
            self.open()[self.name].check_sources()

    def refuse(self, bounds: tuple[int, ...] | None, values: int) -> NoReturn:
        """Raise because the dataset does not have the extent that is mapped.

        Parameters
        ----------
        bounds : tuple of int or None
            The extent that is mapped; None if all of the dataset is.
        values : int
            Number of mapped values.
        """
        if bounds is not None:
            message = f"{self._description} has shape {self.shape}, and {bounds} is needed of it"
            raise CorruptDataError(f"{message}: restore it from a copy", path=self.path)
        size = math.prod(self.shape)
        message = (
            f"{self._description} has {size} values (shape {self.shape}), and {values} are mapped from it"
        )
        raise CorruptDataError(f"{message}: restore it from a copy, or merge again", path=self.path)

    def refuse_change(self) -> NoReturn:
        """Raise because the file was changed while it was read."""
        message = f"{self._description} was changed while it was read: read it again"
        raise CorruptDataError(message, path=self.path)

    def open(self) -> h5py.File:
        """Return a handle of the file."""
        if self._file is None:
            with self._errors_with_context():
                self._file = self._sources.open_file(self.path)
        return self._file

    def read_into(self, out: np.ndarray[Any, Any], parts: tuple[Any, ...]) -> None:
        """Read a selection, one slice or list per axis, into an array of as many values."""
        # Without a FileVersion of the last check: this is done for every source of every read.
        if self._current_version()[:4] != self._sources.files.get(self._number)[1]:
            self._sources.files.set(self._number, os.fsencode(self.path), None)
            self.close()
            self.check()
            bounds = tuple(one.stop if isinstance(one, slice) else int(one[-1]) + 1 for one in parts)
            if len(self.shape) != len(bounds) or any(n < m for n, m in zip(self.shape, bounds, strict=True)):
                self.refuse(bounds, 0)
        with self._errors_with_context():
            dataset = self.open()[self.name]
            if out.dtype.hasobject or not out.flags.c_contiguous:
                out[...] = dataset[parts].reshape(out.shape)
            else:
                dataset.read_direct(out.reshape(_lengths(parts)), source_sel=parts)

    def close(self) -> None:
        """Close the handle of the file; it is opened again at the next use."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _current_version(self) -> FileVersion:
        try:
            return FileVersion.of(os.stat(self.path))
        except FileNotFoundError:
            link = f" (a link to {os.readlink(self.path)!r})" if os.path.islink(self.path) else ""
            message = (
                f"{self._description} is missing{link}: it was moved or removed; restore it, or merge again"
            )
            raise NotFoundError(message, path=self.path) from None
        except OSError as error:
            raise self._denied(error) from None

    def _check_dataset(self, file_id: h5py.h5f.FileID) -> bool:
        """Check the dataset and store its state; return whether it is virtual itself."""
        try:
            dataset = h5py.h5d.open(file_id, encode_name(self.name))
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            what = dangling_link(file_id, self.name) or f"has no such dataset ({first_line(error)})"
            raise SchemaError(
                f"{self._description} {what}: restore it, or merge again", path=self.path
            ) from None
        target = self._sources
        equal = dataset.get_type() == target.stored
        if not (equal or fits(dataset.dtype, target.dtype)):
            message = f"{self._description} has type {dataset.dtype}, which does not fit into {target.dtype}"
            raise SchemaError(f"{message}: HDF5 would change its values; merge again", path=self.path)
        layout = dataset.get_create_plist()
        contiguous = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
        offset_bytes = contiguous_offset(dataset) if contiguous and equal and target.as_in_memory else None
        nested = is_virtual(layout)
        self._sources.put(self._number, dataset.shape, offset_bytes=offset_bytes, nested=nested)
        return nested

    @property
    def _role(self) -> str:
        return f"a source of {self._sources.name!r} of {self._sources.path!r}"

    @property
    def _description(self) -> str:
        return f"{self.name!r} of {self.path!r}, {self._role},"

    def _denied(self, error: OSError) -> CorruptDataError:
        code = errno.errorcode.get(error.errno or 0, str(error.errno))
        message = f"{self._description} cannot be read ({code}): get the right to read it, then open it again"
        return CorruptDataError(message, path=self.path)

    @contextlib.contextmanager
    def _errors_with_context(self) -> Any:
        try:
            yield
        except PermissionError as error:
            raise self._denied(error) from None
        except ShardkeepError as error:
            if self._sources.path in str(error):
                raise
            described = type(error)(f"{self._role}: {error}", path=self.path)
            described.__dict__.update({k: v for k, v in error.__dict__.items() if k != "path"})
            raise described from error
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            message = f"{self._description} cannot be read ({first_line(error)})"
            if is_unsupported(error):
                raise SchemaError(f"{message}: h5py does not support its type", path=self.path) from error
            raise CorruptDataError(f"{message}: restore it from a copy", path=self.path) from error


def _lengths(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(
        len(range(0, one.stop - one.start, one.step)) if isinstance(one, slice) else len(one) for one in parts
    )
