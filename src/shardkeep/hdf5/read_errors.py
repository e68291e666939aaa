"""Conversion of errors that h5py and HDF5 raise while they read an open file."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator

import h5py

from shardkeep.errors import CorruptDataError, MissingExtraError, SchemaError, ShardkeepError
from shardkeep.files.durable import FAILED_READS, read_error

__all__ = ["failed_read", "first_line", "is_of_hdf5", "is_unsupported", "reading"]

# H5T.c of HDF5, and the source of h5py that makes a dtype of a type in a file.
_NO_CONVERSION = "no appropriate function for conversion path"
_TYPES = "h5py/h5t.pyx"
# H5FDsec2.c; h5py sets `errno` for some of its errors only.
_ERRNO = re.compile(r"errno = (\d+), error message")
# H5Zscaleoffset.c before 2.0, also for values that are as wide as their type.
_FULL_WIDTH = "minimum number of bits exceeds size of type"


@contextlib.contextmanager
def reading(path: str, name: str | None = None, what: str = "rows of") -> Iterator[None]:
    """Raise errors of h5py and HDF5 in the body as errors of the tree.

    Parameters
    ----------
    path : str
        The file that is read; the body must not write.
    name : str, optional
        Name of the dataset or attribute.
    what : str
        The part that is read, for the error; used with a name.

    Raises
    ------
    CorruptDataError
        HDF5 or h5py cannot read it, or its size is more than memory holds.
    SchemaError
        h5py has no type for the values, or a text is not UTF-8: the file may be intact.
    OSError
        The system cannot read: the disk, the network or the file server failed.
    MissingExtraError
        This version of HDF5 cannot decode the values: the file may be intact.

    Notes
    -----
    A `ShardkeepError`, and an error of code outside h5py, is raised unchanged.
    """
    try:
        yield
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        failed = failed_read(path, error)
        if failed is not None:
            raise failed from error
        subject = f"{what} {name!r} in {path!r} cannot be read" if name else f"HDF5 cannot read {path!r}"
        reason = first_line(error)
        if _FULL_WIDTH in reason and h5py.version.hdf5_version_tuple < (2, 0):
            version = h5py.version.hdf5_version
            message = f"{subject} here, since HDF5 {version} does not decode scale-offset at full width"
            raise MissingExtraError(f"{message}: use h5py with HDF5 2.0 or later", path=path) from error
        if is_unsupported(error):
            message = f"{subject} here, since h5py does not support its type or name ({reason})"
            raise SchemaError(f"{message}: leave it out, or read it with h5dump", path=path) from error
        if isinstance(error, MemoryError):
            reason = f"more than memory holds: {reason}"
        message = f"{subject} ({reason}): restore the file from a copy"
        raise CorruptDataError(message, path=path) from error


def failed_read(path: str, error: BaseException) -> OSError | None:
    """Return the error of the system in an error of HDF5; None if the content of the file may cause it."""
    number = getattr(error, "errno", None)
    if number is None:
        found = _ERRNO.search(str(error))
        number = None if found is None else int(found[1])
    return read_error(path, OSError(number, "")) if number in FAILED_READS else None


def is_of_hdf5(error: BaseException) -> bool:
    """Return whether an error comes from reading an HDF5 file; for damage h5py raises nearly all classes.

    It does if code of h5py is in its traceback. A `MemoryError` always counts, since NumPy allocates damaged
    sizes too, and an `OSError`, since some rows are read without HDF5. A `PermissionError` does not.
    """
    if isinstance(error, (ShardkeepError, PermissionError)) or not isinstance(error, Exception):
        return False
    if isinstance(error, (MemoryError, OSError)):
        return True
    for frame, _ in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] == "h5py":
            return True
    return False


def is_unsupported(error: BaseException) -> bool:
    """Return whether an error comes from a type or text that h5py does not support, and not from damage."""
    if isinstance(error, UnicodeError) or _NO_CONVERSION in str(error):
        return True
    frames = traceback.walk_tb(error.__traceback__)
    return isinstance(error, TypeError) and any(_TYPES in frame.f_code.co_filename for frame, _ in frames)


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its class."""
    return (str(error).splitlines() or [type(error).__name__])[0]
