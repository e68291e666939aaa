"""Files and folders that the page may show, and their addresses.

A location is a path below one of the roots that the command names. Its address is
``/<token>/<number of the root>/<path below it>``, each byte that is not plain quoted, so that a name that is
not valid UTF-8 has an address too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_to_bytes, urlencode

from shardkeep.errors import NotFoundError, UntrustedFileError, one_line
from shardkeep.files.kinds.kind import FileKind, identify

__all__ = ["Location", "Roots", "is_within"]


def is_within(path: str, root: str) -> bool:
    """Return whether a real path is a root, or below it."""
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


@dataclass(frozen=True)
class Location:
    """A file or folder below a root.

    Attributes
    ----------
    base : str
        Begin of every address of this page: ``/<token>``.
    number : int
        Number of the root.
    root : str
        Real path of the root.
    parts : tuple of str
        Names from the root to the location; empty for the root itself.
    path : str
        Real path of the location, without symbolic links.
    """

    base: str
    number: int
    root: str
    parts: tuple[str, ...]
    path: str

    @property
    def name(self) -> str:
        """Name for people."""
        return one_line(self.parts[-1] if self.parts else os.path.basename(self.root) or self.root)

    @functools.cached_property
    def kind(self) -> FileKind:
        """Kind of the file, from its first bytes; read once a request."""
        return identify(self.path)

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return os.path.isdir(self.path)

    @property
    def leads_out(self) -> bool:
        """True if a symbolic link on the way leads out of the root; such a location is refused."""
        return not is_within(os.path.realpath(self.path), self.root)

    @property
    def command_path(self) -> str:
        """Path for a command that a person copies."""
        return os.path.join(self.root, *self.parts)

    def address(self, view: str = "", **parameters: object) -> str:
        """Return the address of a view of this location.

        Parameters
        ----------
        view : str
            Name of the view; by default the first one that fits.
        **parameters
            Other parameters of the address; those that are None are left out.
        """
        path = "/".join(
            [self.base, str(self.number), *(quote(os.fsencode(one), safe="") for one in self.parts)]
        )
        given = {"view": view or None, **parameters}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        return path + (f"?{query}" if query else "")

    def child(self, name: str) -> Location:
        """Return a location in this folder, without a check that it exists; its own address checks it."""
        return replace(self, parts=(*self.parts, name), path=os.path.join(self.path, name))

    def parents(self) -> list[Location]:
        """Return the folders above, from the root on."""
        above = [self.parts[:count] for count in range(len(self.parts))]
        return [replace(self, parts=parts, path=os.path.join(self.root, *parts)) for parts in above]


class Roots:
    """The files and folders that the command names.

    Parameters
    ----------
    paths : sequence of str
        Existing files and folders.
    base : str
        ``/<token>``.

    Raises
    ------
    NotFoundError
        A path does not exist.
    """

    def __init__(self, paths: Sequence[str], base: str) -> None:
        for path in paths:
            if not os.path.exists(path):
                raise NotFoundError(f"{path}: no such file or folder", path=path)
        self._base = base
        self._paths = [os.path.realpath(path) for path in paths]

    def locations(self) -> list[Location]:
        """Return the locations of the roots."""
        return [Location(self._base, number, path, (), path) for number, path in enumerate(self._paths)]

    def find(self, address: bytes) -> Location:
        """Return the location of an address.

        Parameters
        ----------
        address : bytes
            The quoted path after the token: ``0/train/part-0.tfrecord``.

        Raises
        ------
        NotFoundError
            There is no such file.
        UntrustedFileError
            The address, or a symbolic link on the way, leads out of the root.
        """
        number, *parts = (os.fsdecode(unquote_to_bytes(one)) for one in address.strip(b"/").split(b"/"))
        if number not in map(str, range(len(self._paths))):
            raise NotFoundError("no such address; begin at the first page")
        if any(one in ("", ".", "..") or "/" in one or "\0" in one for one in parts):
            raise UntrustedFileError("the address leads out of the folder")
        root = self._paths[int(number)]
        whole = os.path.join(root, *parts)
        found = Location(self._base, int(number), root, tuple(parts), os.path.realpath(whole))
        if found.leads_out:
            raise UntrustedFileError(
                f"{found.name} is a link to a file elsewhere; start `shardkeep view` with that file",
                path=whole,
            )
        if not os.path.lexists(found.path):
            raise NotFoundError(f"{found.name}: no such file; it may have been removed", path=whole)
        return found
