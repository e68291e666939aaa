"""`all_or_nothing`: objects of an HDF5 file that are made together, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import h5py

from shardkeep.errors import InternalError

__all__ = ["all_or_nothing", "groups_of"]


def groups_of(name: str) -> list[str]:
    """Return the groups that an object lies in, the outermost first.

    Examples
    --------
    >>> groups_of("a/b/c")
    ['a', 'a/b']
    """
    places = [place for place, one in enumerate(name) if one == "/"]
    return [name[:place] for place in places]


@contextlib.contextmanager
def all_or_nothing(file: h5py.File, *names: str) -> Iterator[None]:
    """Take out again what the body has made of these objects, and of the groups for them, if it raises.

    Raises
    ------
    InternalError
        That cannot be done either: the file has to be given up.
    """
    missing = [_first_missing(file, name) for name in names]
    try:
        yield
    except BaseException as error:
        try:
            for name in missing:
                if name is not None and name in file:
                    del file[name]
        except Exception as second:
            message = f"{file.filename!r} holds half of an object ({error}; {second})"
            raise InternalError(f"{message}: it goes on from its last commit") from error
        raise


def _first_missing(file: h5py.File, name: str) -> str | None:
    return next((one for one in [*groups_of(name), name] if one not in file), None)
