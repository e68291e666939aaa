"""`all_or_nothing`: objects of an HDF5 file that are made together, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator

import h5py

from shardkeep.errors import InternalError

__all__ = ["all_or_nothing", "first_missing", "groups_of"]


def groups_of(name: str) -> list[str]:
    """Return the groups that an object lies in, the outermost first.

    Examples
    --------
    >>> groups_of("a/b/c")
    ['a', 'a/b']
    """
    places = [place for place, one in enumerate(name) if one == "/"]
    return [name[:place] for place in places]


def first_missing(name: str, known: Container[str]) -> str | None:
    """Return the outermost group of an object that is not there, or the object; None if it is there.

    Parameters
    ----------
    name : str
    known : container of str
        What is there: the file, or a set of names, since to ask HDF5 takes as long as to make a dataset.

    Examples
    --------
    >>> first_missing("a/b/c", {"a"})
    'a/b'
    """
    return next((one for one in (*groups_of(name), name) if one not in known), None)


@contextlib.contextmanager
def all_or_nothing(file: h5py.File, *missing: str | None) -> Iterator[None]:
    """Take out again what the body has made of these objects, which are not there now, if it raises.

    Raises
    ------
    InternalError
        That cannot be done either: the file has to be given up.
    """
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
