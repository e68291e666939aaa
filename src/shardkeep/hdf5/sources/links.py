"""Links and named types of an HDF5 file.

All names are found in one walk over the links of a file. HDF5 enters a group that has several names only
once, by the first of them in the order of names; the others are hard links to it.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import h5py

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.read_errors import is_of_hdf5
from shardkeep.hdf5.storage.dtypes import describe_dtype
from shardkeep.hdf5.storage.names import decode_name, is_reserved, own_names

__all__ = [
    "CreationOrder",
    "LinkInfo",
    "NameCheck",
    "Names",
    "read_links",
    "resolve",
    "type_link",
    "walk_links",
]

LinkKind = Literal["hard", "soft", "type", "external", "foreign"]

_MOST_HOPS = 16  # HDF5's own default of H5Pset_nlinks


@dataclass(frozen=True)
class LinkInfo:
    """A link or named type.

    Attributes
    ----------
    kind : str
        "hard": another name of a dataset, group or named type; "soft"; "type": a named datatype;
        "external": to another file; "foreign": of a class that some program defined.
    target : str
        The other name, the path as the link has it, or file and path; of a type its description.
    code : bytes
        The encoding of a type (H5Tencode).
    """

    kind: LinkKind
    target: str
    code: bytes = b""

    @property
    def crc32c(self) -> int:
        """Hash of kind and target."""
        return crc32c(f"{self.kind}\0{self.target}".encode("utf-8", "surrogateescape"))

    @property
    def path(self) -> str:
        """Path of the target in the same file; that of a soft link may be relative to its group."""
        return f"/{self.target.lstrip('/')}" if self.kind == "hard" else self.target

    @property
    def described(self) -> str:
        """Text for messages."""
        texts = {
            "hard": f"another name of {self.target!r}",
            "soft": f"a soft link to {self.target!r}",
            "type": f"the named type {self.target}",
            "external": f"a link to another file, {self.target}",
            "foreign": "a link of a class that HDF5 does not know",
        }
        return texts[self.kind]


@dataclass(frozen=True)
class CreationOrder:
    """Order of creation in a group that keeps one.

    Attributes
    ----------
    links, attributes : int
        Flags of H5Pset_link_creation_order and H5Pset_attr_creation_order.
    names : tuple of str
        Names of the links in their order; empty if the group does not keep it.
    """

    links: int
    attributes: int
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: h5py.Group) -> CreationOrder | None:
        """Return the order of a group; None if it keeps none."""
        properties = group.id.get_create_plist()
        links, attributes = properties.get_link_creation_order(), properties.get_attr_creation_order()
        if not links and not attributes:
            return None
        return cls(links, attributes, tuple(group) if links else ())

    def restore(self, group: h5py.Group) -> None:
        """Put the links of a group in this order; others come after them."""
        there = list(group)
        present, known = set(there), set(self.names)
        wanted = [name for name in self.names if name in present]
        wanted += [name for name in there if name not in known]
        first = next((i for i, name in enumerate(wanted) if name != there[i]), len(there))
        links, aside = group.id.links, max(there, key=len, default="").encode() + b"_"  # no name is longer
        for name in wanted[first:]:
            # A link that is moved becomes the newest one.
            links.move(name.encode(), group.id, aside)
            links.move(aside, group.id, name.encode())


@dataclass(frozen=True)
class Names:
    """Names of the user in one file.

    Attributes
    ----------
    objects : list of bytes
        Datasets, groups and named types, each once, in the order of the file.
    links : dict
        All other names.
    reserved : tuple of str
        Objects of the user with a name that is reserved for Shardkeep; not in `objects` and `links`.
    has_own : bool
        Whether there are objects of Shardkeep itself, so that a merge or a collector wrote the file.
    """

    objects: list[bytes]
    links: dict[str, LinkInfo]
    reserved: tuple[str, ...] = ()
    has_own: bool = False


def walk_links(file: h5py.h5f.FileID) -> Names:
    """Return all names in an open file."""
    objects: list[bytes] = []
    links: dict[str, LinkInfo] = {}
    first: dict[int, str] = {}
    reserved: list[str] = []
    check = NameCheck(file)

    def visit(name: bytes, info: Any) -> None:
        text = decode_name(name)
        check.add(text)
        if is_reserved(text):
            reserved.append(text)
            return
        if info.type == h5py.h5l.TYPE_HARD:
            if not first:
                first[h5py.h5o.get_info(file).addr] = "/"
            known = first.setdefault(info.u, text)
            if known == text:
                objects.append(name)
            else:
                links[text] = LinkInfo("hard", known)
        elif info.type == h5py.h5l.TYPE_SOFT:
            links[text] = LinkInfo("soft", decode_name(file.links.get_val(name)))
        elif info.type == h5py.h5l.TYPE_EXTERNAL:
            path, inside = file.links.get_val(name)
            links[text] = LinkInfo("external", f"{decode_name(path)}:{decode_name(inside)}")
        else:
            links[text] = LinkInfo("foreign", "")

    file.links.visit(visit, info=True)
    check.finish()
    own = own_names(file, reserved) if reserved else set()
    return Names(objects, links, tuple(name for name in reserved if name not in own), bool(own))


class NameCheck:
    """Check of the names that HDF5 visits in a file: none may lead to another object.

    A damaged link may be called "a/b" or ".", which HDF5 reads as a path when it opens the name.
    """

    def __init__(self, file: h5py.h5f.FileID) -> None:
        self._file = file
        self._names: set[str] = set()
        self._wrong: str | None = None

    def add(self, name: str) -> None:
        """Add one name; this raises nothing, since h5py loses the errors of a function that visits links."""
        if name in self._names or not {"", "."}.isdisjoint(name.split("/")):
            self._wrong = name
        self._names.add(name)

    def finish(self) -> None:
        """Raise a `CorruptDataError` if a name occurred twice, or one of its parts is not a name."""
        if self._wrong is not None:
            path = os.fsdecode(h5py.h5f.get_name(self._file))
            message = f"{path!r} has the name {self._wrong!r} where HDF5 finds another object: it is damaged"
            raise CorruptDataError(f"{message}, restore it from a copy", path=path)


def read_links(file: h5py.h5f.FileID) -> dict[str, LinkInfo]:
    """Return links and named types of an open file."""
    names = walk_links(file)
    for name in names.objects:
        item = h5py.h5o.open(file, name)
        if isinstance(item, h5py.h5t.TypeID):
            names.links[decode_name(name)] = type_link(item)
    return names.links


def type_link(kind: h5py.h5t.TypeID) -> LinkInfo:
    """Describe a named type."""
    try:
        target = describe_dtype(kind.dtype)
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        target = "that h5py cannot read"
    return LinkInfo("type", target, kind.encode())


def resolve(
    path: str, at: str, objects: Container[str], links: Mapping[str, LinkInfo], hops: int = _MOST_HOPS
) -> str | None:
    """Return the object that a path leads to, "" for the root; None if there is none in this file.

    Parameters
    ----------
    path : str
        From the root if it begins with "/", otherwise from the group of the link.
    at : str
        Name of the link.
    objects, links : containers of str
        Names of a file.
    hops : int
        Number of links that may be followed.

    Examples
    --------
    >>> resolve("x", "g/s", {"g", "g/x"}, {})
    'g/x'
    >>> resolve("/h/x", "s", {"g", "g/x"}, {"h": LinkInfo("hard", "g")})
    'g/x'
    """
    here = "" if path.startswith("/") else at.rpartition("/")[0]
    for part in path.split("/"):
        if part in ("", "."):
            continue
        name = f"{here}/{part}" if here else part
        link = links.get(name)
        if link is not None and link.kind != "type":
            if link.kind not in ("hard", "soft") or not hops:
                return None
            found = resolve(link.path, name, objects, links, hops - 1)
            if found is None:
                return None
            name = found
        elif link is None and name not in objects:
            return None
        here = name
    return here
