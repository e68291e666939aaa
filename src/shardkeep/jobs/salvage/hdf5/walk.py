"""Copy of every object of a damaged file: by HDF5, or from what is left of its metadata."""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import Any, NamedTuple

import h5py

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.compression import filter_codes, offer_filters
from shardkeep.hdf5.storage.dtypes import has_references
from shardkeep.hdf5.storage.names import decode_name
from shardkeep.jobs.salvage.hdf5.attributes import attach_scales, copy_attributes
from shardkeep.jobs.salvage.hdf5.findings import Findings
from shardkeep.jobs.salvage.hdf5.header import is_checked_dataset, is_checked_group
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.remains import Remains
from shardkeep.jobs.salvage.hdf5.rows import RowCopy
from shardkeep.jobs.salvage.hdf5.storage import Hdf5Rows, RawRows, References
from shardkeep.jobs.salvage.hdf5.target import Target

__all__ = ["LOST_AND_FOUND", "Walk"]

LOST_AND_FOUND = "lost+found"
"""Group of a repaired file with the objects to which no link leads, ``object-at-<offset>``."""
_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError)
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# Marks of parts of an object, after its path, if HDF5 does not survive reading one.
_ATTRIBUTES, _REMAINS = "\0attributes", "\0remains"


class _Group(NamedTuple):
    """A group whose members are not copied yet; `source` is None if HDF5 does not open it."""

    source: Any
    offset_bytes: int
    copy: Any
    path: str
    is_checked: bool


class _Object(NamedTuple):
    """An object that has its copy; `source` is None if HDF5 does not open it."""

    source: Any
    offset_bytes: int
    copy: Any
    path: str


class Walk:
    """Copy of the objects of a file.

    Parameters
    ----------
    raw : PatchedFile
    file : h5py.File or None
        The same, opened by HDF5; None if HDF5 cannot open it.
    base : int
        Size of the user block, to which addresses are relative.
    target : Target
    findings : Findings
    remains : Remains or None
        None to copy only what HDF5 reads.
    skipped : collection of str
        Paths of objects that ended the process.
    """

    def __init__(
        self,
        raw: PatchedFile,
        file: h5py.File | None,
        base: int,
        target: Target,
        findings: Findings,
        remains: Remains | None,
        skipped: Collection[str],
    ) -> None:
        self._raw, self._file, self._base = raw, file, base
        self._target, self._findings = target, findings
        self._remains, self._skipped = remains, skipped
        self._copies: dict[int, Any] = {}
        self._tried: set[int] = set()
        self._waiting: list[_Group] = []
        self._objects: list[_Object] = []
        self._references: list[tuple[Any, Any, str]] = []
        self._losses: list[dict[str, Any]] = []
        self._lost_links = False

    def run(self, *, checked: bool) -> None:
        """Copy everything; `checked` says whether a checksum covers the address of the root group."""
        root = h5py.h5g.open(self._target.file.id, b"/")
        source, offset_bytes = self._root()
        if offset_bytes is None:
            self._lost_links = True
            self._lose("the root group is lost", "/")
        else:
            self._copies[offset_bytes] = root
            self._waiting.append(_Group(source, offset_bytes, root, "/", checked))
        self._all_members()
        if self._lost_links and self._remains is not None:
            self._without_links(root)
        for item, copy, path in self._references:
            self._copy_references(item, copy, path)
        for one in self._objects:
            self._copy_attributes(one)
        self._target.note(root, self._losses)

    # -- groups ----------------------------------------------------------------------------------

    def _root(self) -> tuple[Any, int | None]:
        if self._file is not None and "/" not in self._skipped:
            self._findings.begin("/")
            try:
                root = h5py.h5g.open(self._file.id, b"/")
                return root, self._offset(root)
            except _ERRORS:
                pass
        found = None if self._remains is None else self._remains.root()
        return None, None if found is None else found.offset

    def _all_members(self) -> None:
        while self._waiting:
            group = self._waiting.pop()
            self._objects.append(_Object(*group[:4]))
            self._members(group)

    def _members(self, group: _Group) -> None:
        checked = group.is_checked and self._is_checked_group(group)
        if not checked:
            reason = "the file has no checksum of the names of its members"
            self._findings.add("unchecked", reason, group.path)
        remains = self._remaining(group.offset_bytes)
        links = {} if remains is None else {name: (kind, to) for name, kind, to in remains.links if name}
        names: list[bytes] = []
        try:
            if group.source is None:
                raise ValueError("HDF5 does not open it")
            group.source.links.iterate(names.append)
        except _ERRORS as error:
            names = list(dict.fromkeys([*names, *links]))
            if remains is None or not remains.links_are_whole:
                self._lost_links = True
                self._lose(f"members of it are lost ({first_line(error)})", group.path)
        for name in names:
            path = f"{group.path.rstrip('/')}/{decode_name(name)}"
            reason = "HDF5 does not survive reading it"
            if group.source is None:
                reason = "its object header is damaged"
            elif path not in self._skipped:
                self._findings.begin(path)
                try:
                    self._member(group, name, path, checked)
                    continue
                except _ERRORS as error:
                    _raise_if_full(error)
                    reason = f"it cannot be read ({first_line(error)})"
                    self._forget(group.copy, name, path)
            try:
                self._remaining_member(group.copy, name, path, checked, links.get(name), reason)
            except _ERRORS as error:
                _raise_if_full(error)
                self._forget(group.copy, name, path)
                self._lose(f"it cannot be read ({first_line(error)})", path)

    def _forget(self, parent: Any, name: bytes, path: str) -> None:
        """Remove what a failed copy left."""
        if parent.links.exists(name):
            parent.unlink(name)
        if self._objects and self._objects[-1].path == path:
            self._copies.pop(self._objects.pop().offset_bytes, None)

    # -- objects that HDF5 opens -----------------------------------------------------------------

    def _member(self, group: _Group, name: bytes, path: str, checked: bool) -> None:
        links = group.source.links
        kind = links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT:
            group.copy.links.create_soft(name, links.get_val(name))
            return
        if kind == h5py.h5l.TYPE_EXTERNAL:
            group.copy.links.create_external(name, *links.get_val(name))
            return
        item = h5py.h5o.open(group.source, name)
        offset_bytes = self._offset(item)
        if self._is_known(offset_bytes, group.copy, name):
            return
        if isinstance(item, h5py.h5g.GroupID):
            copy = h5py.h5g.create(group.copy, name, None, _group_properties(item))
            self._copies[offset_bytes] = copy
            self._waiting.append(_Group(item, offset_bytes, copy, path, checked))
        elif isinstance(item, h5py.h5d.DatasetID):
            self._dataset(item, offset_bytes, group.copy, name, path, checked)
        else:
            copy = item.copy()
            copy.commit(group.copy, name)
            self._add(item, offset_bytes, copy, path)

    def _dataset(
        self, item: Any, offset_bytes: int, parent: Any, name: bytes, path: str, checked: bool
    ) -> None:
        properties, kind = item.get_create_plist(), item.get_type().copy()
        offer_filters(filter_codes(properties))
        copy = h5py.h5d.create(parent, name, kind, item.get_space(), properties)
        self._add(item, offset_bytes, copy, path)
        if properties.get_layout() == h5py.h5d.VIRTUAL:
            self._findings.add("kept", "a virtual dataset: its mappings, whose rows are in other files", path)
        elif properties.get_external_count():
            self._findings.add("kept", "its rows are in other files", path)
        elif has_references(kind):
            self._references.append((item, copy, path))
        else:
            checked = checked and is_checked_dataset(self._read, offset_bytes)
            rows: Any = Hdf5Rows(item)
            remains = self._remaining(offset_bytes)
            if remains is not None and _is_same(remains.dataset, item):
                assert self._remains is not None
                index = rows if checked else None
                rows = RawRows(remains.dataset, kind, self._raw, self._remains.heaps, index)
            self._copy_rows(rows, copy, path, checked)

    def _copy_references(self, item: Any, copy: Any, path: str) -> None:
        self._findings.begin(path)
        is_of_objects = h5py.check_ref_dtype(item.dtype) is h5py.Reference
        rows = References(item, self._refer) if is_of_objects else Hdf5Rows(item)
        self._copy_rows(rows, copy, path, checked=False)

    # -- objects that only their remains show ----------------------------------------------------------

    def _remaining_member(
        self, parent: Any, name: bytes, path: str, checked: bool, link: Any, reason: str
    ) -> None:
        if link is None:
            self._lose(reason, path)
            return
        kind, to = link
        if kind == "soft":
            parent.links.create_soft(name, to)
        elif kind == "external":
            parent.links.create_external(name, *to)
        elif not self._is_known(to, parent, name):
            item = self._remaining(to)
            if item is None or item.kind in ("lost", "other") or path + _REMAINS in self._skipped:
                self._lose(reason, path)
            else:
                self._remaining_item(item, parent, name, path, checked)

    def _remaining_item(self, item: Any, parent: Any, name: bytes, path: str, checked: bool) -> None:
        assert self._remains is not None
        self._tried.add(item.offset)
        self._findings.begin(path + _REMAINS)
        if item.kind == "group":
            copy = h5py.h5g.create(parent, name)
            self._copies[item.offset] = copy
            self._waiting.append(_Group(None, item.offset, copy, path, checked))
        elif item.kind == "type":
            self._add(None, item.offset, self._remains.create_type(parent, name, item), path)
        else:
            copy = self._remains.create_dataset(parent, name, item)
            self._add(None, item.offset, copy, path)
            rows = RawRows(item.dataset, copy.get_type(), self._raw, self._remains.heaps)
            self._copy_rows(rows, copy, path, checked and self._remains.is_checked_dataset(item))

    def _without_links(self, root: Any) -> None:
        """Copy the objects to which no link leads."""
        assert self._remains is not None
        parent = None
        for item in self._remains.found.objects:
            known = item.offset in self._copies or item.offset in self._tried
            if known or item.kind not in ("group", "dataset", "type"):
                continue
            if parent is None:
                parent = h5py.h5g.create(root, LOST_AND_FOUND.encode())
            name = f"object-at-{item.offset}"
            path = f"/{LOST_AND_FOUND}/{name}"
            if path + _REMAINS in self._skipped:
                self._lose("HDF5 does not survive reading it", path)
                continue
            try:
                self._remaining_item(item, parent, name.encode(), path, checked=True)
            except _ERRORS as error:
                _raise_if_full(error)
                self._forget(parent, name.encode(), path)
                self._lose(f"it cannot be read ({first_line(error)})", path)
            self._all_members()

    # -- all objects ---------------------------------------------------------------------------------

    def _copy_rows(self, source: Hdf5Rows | RawRows, copy: Any, path: str, checked: bool) -> None:
        writes = self._target.writes
        rows = RowCopy(source, copy, self._raw, self._findings, path, checked=checked, writes=writes)
        try:
            rows.run()
        except _ERRORS as error:
            _raise_if_full(error)
            rows.lose_all(f"its rows cannot be read ({first_line(error)})")
        self._target.note(copy, rows.lost)
        self._losses += [{"object": path, **one} for one in rows.lost]

    def _copy_attributes(self, one: _Object) -> None:
        found: list[tuple[str, str]] = [("lost", "its attributes cannot be read")]
        mark, remains = one.path + _ATTRIBUTES, self._remaining(one.offset_bytes)
        if remains is not None and mark + _REMAINS not in self._skipped:
            assert self._remains is not None
            self._findings.begin(mark + _REMAINS)
            found = list(self._remains.copy_attributes(remains, one.copy))
        is_lost = any(outcome == "lost" for outcome, _ in found)
        if one.source is not None and mark not in self._skipped:
            self._findings.begin(mark)
            if is_lost:
                found = [each for each in found if each[0] != "lost"]
                found += copy_attributes(one.source, one.copy, self._refer)
            found += attach_scales(one.source, one.copy, self._copy_of)
        for outcome, reason in found:
            if outcome == "lost":
                self._lose(reason, one.path)
            else:
                self._findings.add("unchecked", reason, one.path)

    def _add(self, source: Any, offset_bytes: int, copy: Any, path: str) -> None:
        self._copies[offset_bytes] = copy
        self._objects.append(_Object(source, offset_bytes, copy, path))

    def _is_known(self, offset_bytes: int, parent: Any, name: bytes) -> bool:
        """Return whether an object has a copy, and link to it."""
        copy = self._copies.get(offset_bytes)
        if copy is not None:
            h5py.h5o.link(copy, parent, name)
        return copy is not None

    def _lose(self, reason: str, path: str) -> None:
        self._findings.add("lost", reason, path)
        self._losses.append({"object": path, "reason": reason})

    def _offset(self, item: Any) -> int:
        return self._base + int(h5py.h5o.get_info(item).addr)

    def _read(self, offset_bytes: int, count: int) -> bytes:
        return self._raw.read_at(offset_bytes, count)

    def _remaining(self, offset_bytes: int) -> Any:
        return None if self._remains is None else self._remains.objects.get(offset_bytes)

    def _is_checked_group(self, group: _Group) -> bool:
        if group.source is not None:
            return is_checked_group(self._read, group.offset_bytes)
        return Remains.is_checked_group(self._remaining(group.offset_bytes))

    def _copy_of(self, reference: Any) -> Any:
        """Return the copy of an object of the damaged file; None if there is none."""
        assert self._file is not None
        return self._copies.get(self._offset(h5py.h5r.dereference(reference, self._file.id)))

    def _refer(self, reference: Any) -> Any:
        """Return the reference to the copy of an object."""
        if not reference:
            return h5py.h5r.Reference()
        copy = self._copy_of(reference)
        return None if copy is None else h5py.h5r.create(copy, b".", h5py.h5r.OBJECT)


def _group_properties(group: Any) -> Any:
    """Return properties for a group like another one; those of HDF5 have addresses of the old file."""
    old, new = group.get_create_plist(), h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    new.set_link_creation_order(old.get_link_creation_order())
    new.set_attr_creation_order(old.get_attr_creation_order())
    return new


def _is_same(dataset: Any, item: Any) -> bool:
    """Return whether rows may be read without HDF5, which follows damaged chunk indexes and heaps."""
    if dataset is None or dataset.shape != item.shape:
        return False
    properties = item.get_create_plist()
    layouts = {"compact": h5py.h5d.COMPACT, "contiguous": h5py.h5d.CONTIGUOUS, "chunked": h5py.h5d.CHUNKED}
    if layouts.get(dataset.layout) != properties.get_layout():
        return False
    return dataset.layout != "chunked" or bool(dataset.chunk_shape == properties.get_chunk())


def _raise_if_full(error: BaseException) -> None:
    """Raise an error of the new file; all others come from the damaged one."""
    if getattr(error, "errno", None) in _CANNOT_WRITE:
        raise error
