"""One source of a virtual dataset: found as HDF5 finds it, checked, and read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, NotFoundError, SchemaError, ShardkeepError
from shardkeep.hdf5.checked_sources import CheckedSource
from shardkeep.hdf5.chunk_table import contiguous_offset
from shardkeep.hdf5.forked_handle import close_identifier
from shardkeep.hdf5.hdf5_locking import locking_mode
from shardkeep.hdf5.open_errors import first_line
from shardkeep.hdf5.read_open import open_for_reading

if TYPE_CHECKING:
    from shardkeep.hdf5.file_handle import File

__all__ = ["Signature", "VirtualSource", "fits", "signature_of", "source_path"]

# What tells that a file is the one that was looked at: device, inode, size, time of the last change in ns.
Signature = tuple[int, int, int, int]
_FULL = slice(None)
_CACHE_BYTES = 1024 * 1024


def signature_of(status: os.stat_result) -> Signature:
    """Return what makes a file that file in that state."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def source_path(file_path: str, name: str, *, merged: bool = False) -> str:
    """Return where HDF5 would find a source (``H5F_prefix_open_file`` in its H5F.c).

    HDF5 also looks in the current folder, where another run may have files of the same names. Sources of a
    merge lie where the merged file says, and are never taken from there.

    Parameters
    ----------
    file_path : str
        Absolute path of the file with the virtual dataset.
    name : str
        As it is written there.
    merged : bool
        Whether `shardkeep.hdf5.merge` wrote the file.
    """
    if name == ".":
        return file_path
    folder = os.path.dirname(file_path)
    for path in _candidates(file_path, folder, name, merged):
        if os.path.exists(path):
            return path
    return os.path.join(folder, name)


def _candidates(file_path: str, folder: str, name: str, merged: bool) -> Iterator[str]:
    rest = name
    if os.path.isabs(name):
        yield name
        rest = os.path.basename(name)
    for prefix in os.environ.get("HDF5_VDS_PREFIX", "").split(":"):
        if prefix:
            yield os.path.join(prefix.replace("${ORIGIN}", folder), rest)
    yield os.path.join(folder, rest)
    if rest is name and not merged:
        yield os.path.abspath(rest)
    yield os.path.join(os.path.dirname(os.path.realpath(file_path)), rest)


class VirtualSource:
    """A dataset of another file.

    Parameters
    ----------
    owner_path : str
        The virtual file.
    path, name : str
        File and dataset.
    virtual_name : str
        The virtual dataset.
    dtype : dtype
        Of the virtual dataset.
    stored : h5py.h5t.TypeID
        The same as HDF5 has it in the file.
    as_in_memory : bool
        Whether values lie in a file of that type as they do in an array of that dtype.
    merged : CheckedSource, optional
        What was known of it when it was merged.
    row_shape : tuple of int
        Which it had then.

    Attributes
    ----------
    signature : tuple of int or None
        Of the file when it was last checked.
    shape : tuple of int
        Of the dataset then.
    raw_offset_bytes : int or None
        Where its rows are in the file, if they lie there one after another just as they are in memory.
    nested : bool
        Whether it is virtual itself.
    """

    __slots__ = (
        "_file",
        "as_in_memory",
        "dtype",
        "merged",
        "name",
        "nested",
        "owner_path",
        "path",
        "raw_offset_bytes",
        "row_shape",
        "shape",
        "signature",
        "stored",
        "virtual_name",
    )

    def __init__(
        self,
        owner_path: str,
        path: str,
        name: str,
        virtual_name: str,
        dtype: np.dtype[Any],
        stored: h5py.h5t.TypeID,
        *,
        as_in_memory: bool,
        merged: CheckedSource | None = None,
        row_shape: tuple[int, ...] = (),
    ) -> None:
        self.owner_path = owner_path
        self.path = path
        self.name = name
        self.virtual_name = virtual_name
        self.dtype = dtype
        self.stored = stored
        self.as_in_memory = as_in_memory
        self.merged = merged
        self.row_shape = row_shape
        self.signature: Signature | None = None
        self.shape: tuple[int, ...] = ()
        self.raw_offset_bytes: int | None = None
        self.nested = False
        self._file: File | None = None

    def is_as_checked(self) -> bool:
        """Whether the file is still the one that was checked."""
        if self._status() != self.signature:
            return False
        if self.nested:
            self._check_nested()
        return True

    def check(self, bounds: tuple[int, ...]) -> None:
        """Raise unless the file can be read, and has the dataset with at least that shape and that type."""
        self._look()
        if len(self.shape) != len(bounds) or any(n < m for n, m in zip(self.shape, bounds, strict=True)):
            message = f"{self._told()} has shape {self.shape}, and {bounds} is needed of it"
            raise CorruptDataError(f"{message}: restore it from a copy", path=self.path)

    def check_all(self, values: int | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Do as `check` for a mapping that takes all of the dataset; return it as a box.

        Parameters
        ----------
        values : int or None
            How many the mapping takes.
        """
        self._look()
        size = math.prod(self.shape)
        if values is not None and size != values:
            message = f"{self._told()} has {size} values (shape {self.shape}), and {values} are taken from it"
            raise CorruptDataError(f"{message}: restore it from a copy, or merge again", path=self.path)
        return (0,) * len(self.shape), self.shape

    def open(self) -> File:
        """Return a handle of the file."""
        if self._file is None:
            from shardkeep.hdf5.file_handle import File

            with self._context():
                self._file = File(
                    self.path, "r", timeout_s=0.0, if_unsafe="refuse", check_sources=True, options={}
                )
        return self._file

    def read_into(self, target: np.ndarray[Any, Any], parts: tuple[Any, ...]) -> None:
        """Read a selection, one slice or list per axis, into an array of as many values."""
        if self._status() != self.signature:
            self._forget()
            self.check(_ends(parts))
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

    def _look(self) -> None:
        status = self._status()
        if self.signature != status:
            self._examine(status)

    def _status(self) -> Signature:
        try:
            return signature_of(os.stat(self.path))
        except FileNotFoundError:
            message = f"{self._told()} is not there: it was moved or removed; bring it back, or merge again"
            raise NotFoundError(message, path=self.path) from None
        except OSError as error:
            raise self._denied(error) from None

    def _examine(self, status: Signature) -> None:
        if self._is_as_merged(status):
            return
        with self._context():
            file_id, _, _ = open_for_reading(self.path, self.path, 0.0, _CACHE_BYTES, {})
            try:
                nested = self._examine_dataset(file_id)
            except BaseException:
                close_identifier(file_id)
                raise
            file_id.close()
        self.nested = nested
        if nested:
            self._check_nested()
        self.signature = status

    def _is_as_merged(self, status: Signature) -> bool:
        """Whether the file is the one that was merged and may be read; then it is known what is in it."""
        merged = self.merged
        if merged is None or status[2:] != (merged.size_bytes, merged.mtime_ns):
            return False
        try:
            # A FIFO in its place must not stop us.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            if signature_of(os.fstat(fd)) != status:
                return False
            if locking_mode().effect != "off":
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(fd)
        self.shape = (merged.rows, *self.row_shape)
        self.raw_offset_bytes = None
        if self.as_in_memory and merged.offset_bytes >= 0:
            self.raw_offset_bytes = merged.offset_bytes
        self.nested = False
        self.signature = status
        return True

    def _check_nested(self) -> None:
        with self._context():
            self.open()[self.name].check_sources()

    def _examine_dataset(self, file_id: h5py.h5f.FileID) -> bool:
        try:
            dataset = h5py.h5d.open(file_id, self.name.encode("utf-8", "surrogateescape"))
        except (KeyError, OSError, RuntimeError, ValueError) as error:
            message = f"{self._told()} has no such dataset ({first_line(error)}): restore it, or merge again"
            raise SchemaError(message, path=self.path) from None
        self.shape = tuple(dataset.shape)
        stored = dataset.get_type()
        equal = stored == self.stored
        if not (equal or fits(dataset.dtype, self.dtype)):
            message = f"{self._told()} has type {dataset.dtype}, which does not fit into {self.dtype}"
            raise SchemaError(f"{message}: HDF5 would change its values; merge again", path=self.path)
        layout = dataset.get_create_plist()
        plain = layout.get_layout() == h5py.h5d.CONTIGUOUS and layout.get_external_count() == 0
        self.raw_offset_bytes = None
        if plain and equal and self.as_in_memory:
            self.raw_offset_bytes = contiguous_offset(dataset)
        return bool(layout.get_layout() == h5py.h5d.VIRTUAL)

    def _forget(self) -> None:
        self.signature = None
        self.raw_offset_bytes = None
        self.close()

    def _told(self) -> str:
        return f"{self.name!r} of {self.path!r}, a source of {self.virtual_name!r} of {self.owner_path!r},"

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
            if self.owner_path in str(error):
                raise
            of = f"a source of {self.virtual_name!r} of {self.owner_path!r}"
            told = type(error)(f"{of}: {error}", path=self.path)
            told.__dict__.update({k: v for k, v in error.__dict__.items() if k != "path"})
            raise told from error
        except (OSError, RuntimeError) as error:
            message = f"{self._told()} cannot be read ({first_line(error)}): restore it from a copy"
            raise CorruptDataError(message, path=self.path) from error


def fits(source: np.dtype[Any], virtual: np.dtype[Any]) -> bool:
    """Whether every value of the one type is a value of the other."""
    ours, theirs = h5py.check_enum_dtype(virtual), h5py.check_enum_dtype(source)
    if ours is not None or theirs is not None:
        return bool(ours == theirs)
    text, other = h5py.check_string_dtype(virtual), h5py.check_string_dtype(source)
    if text is not None or other is not None:
        if text is None or other is None or text.encoding != other.encoding:
            return False
        return text.length == other.length or (
            None not in (text.length, other.length) and text.length >= other.length
        )
    if virtual.names is not None or source.names is not None:
        return virtual.names == source.names and all(
            fits(source[name], virtual[name]) for name in virtual.names or ()
        )
    if virtual.hasobject or source.hasobject:
        return bool(source == virtual)
    return bool(np.can_cast(source, virtual, "safe"))


def _lengths(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(
        len(range(0, one.stop - one.start, one.step)) if isinstance(one, slice) else len(one) for one in parts
    )


def _ends(parts: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(one.stop if isinstance(one, slice) else int(one[-1]) + 1 for one in parts)
