"""What h5py and HDF5 raise when they read an open file, as errors of the tree."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shardkeep.errors import CorruptDataError, SchemaError, ShardkeepError

__all__ = ["first_line", "is_of_hdf5", "reading", "unknown_type"]


@contextlib.contextmanager
def reading(path: str, name: str | None = None, what: str = "rows of") -> Iterator[None]:
    """Raise what h5py and HDF5 raise in the body as an error of the tree.

    Parameters
    ----------
    path : str
        The file that is read. Nothing may be written in the body.
    name : str, optional
        Of the dataset, or of the attribute.
    what : str
        What of it is read, before the name; only with a name.

    Raises
    ------
    CorruptDataError
        HDF5 or h5py cannot read it, or it claims more than memory holds.

    Notes
    -----
    Errors of the tree pass, and so does what code outside of h5py raises: a mistake in Shardkeep stays one.
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
    """Return whether reading an HDF5 file raised an error, of any class: for damage h5py uses nearly all.

    It is one if it went through code of h5py. A `MemoryError` counts wherever it comes from, since damaged
    sizes are asked of NumPy too, and so does an `OSError`, since rows are read around HDF5 as well.
    `PermissionError` says all by itself.
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
    """Return the error for a dataset whose type h5py cannot read: damaged, or not one of NumPy."""
    message = f"dataset {name!r} of {path!r} has a type that cannot be read ({first_line(error)})"
    return SchemaError(f"{message}: leave it out", path=path)


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
