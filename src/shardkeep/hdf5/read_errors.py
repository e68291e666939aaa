"""Conversion of errors that h5py and HDF5 raise while they read an open file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shardkeep.errors import CorruptDataError, SchemaError, ShardkeepError

__all__ = ["first_line", "is_of_hdf5", "reading", "unknown_type"]


@contextlib.contextmanager
def reading(path: str, name: str | None = None, what: str = "rows of") -> Iterator[None]:
    """Raise errors of h5py and HDF5 in the body as a `CorruptDataError`.

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

    Notes
    -----
    A `ShardkeepError`, and an error of code outside h5py, is raised unchanged.
    """
    try:
        yield
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        subject = f"{what} {name!r} in {path!r} cannot be read" if name else f"HDF5 cannot read {path!r}"
        reason = first_line(error)
        if isinstance(error, MemoryError):
            reason = f"more than memory holds: {reason}"
        message = f"{subject} ({reason}): restore the file from a copy"
        raise CorruptDataError(message, path=path) from error


def is_of_hdf5(error: BaseException) -> bool:
    """Return whether an error comes from reading an HDF5 file; for damage h5py raises nearly all classes.

    It does if code of h5py is in its traceback. A `MemoryError` always counts, since NumPy allocates damaged
    sizes too, and an `OSError`, since some rows are read without HDF5. A `PermissionError` does not.
    """
    if isinstance(error, (ShardkeepError, PermissionError)) or not isinstance(error, Exception):
        return False
    if isinstance(error, (MemoryError, OSError)):
        return True
    traceback = error.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__")
        if isinstance(module, str) and module.partition(".")[0] == "h5py":
            return True
        traceback = traceback.tb_next
    return False


def unknown_type(path: str, name: str, error: BaseException) -> SchemaError:
    """Return the error for a dataset whose type is damaged or has no equivalent in NumPy."""
    message = f"dataset {name!r} of {path!r} has a type that cannot be read ({first_line(error)})"
    return SchemaError(f"{message}: leave it out", path=path)


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its class."""
    return (str(error).splitlines() or [type(error).__name__])[0]
