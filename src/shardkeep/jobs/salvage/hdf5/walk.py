"""Copy of every object that HDF5 finds by links, into a new file."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import h5py

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.compression import filter_codes, offer_filters
from shardkeep.hdf5.storage.names import decode_name
from shardkeep.jobs.salvage.hdf5.attributes import copy_attributes
from shardkeep.jobs.salvage.hdf5.findings import Findings
from shardkeep.jobs.salvage.hdf5.header import is_checked_dataset, is_checked_group
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile
from shardkeep.jobs.salvage.hdf5.rows import RowCopy
from shardkeep.jobs.salvage.hdf5.target import Target

__all__ = ["Walk"]

_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, OverflowError)


class Walk:
    """Copy of the objects of a file.

    Parameters
    ----------
    raw : PatchedFile
    file : h5py.File
        The same, opened by HDF5.
    base : int
        Size of the user block, to which addresses are relative.
    checked : bool
        True if the superblock has a checksum.
    target : Target
    findings : Findings
    skipped : collection of str
        Paths of objects that ended the process.
    """

    def __init__(
        self,
        raw: PatchedFile,
        file: h5py.File,
        base: int,
        target: Target,
        findings: Findings,
        skipped: Collection[str],
    ) -> None:
        self._raw, self._file, self._base = raw, file, base
        self._target, self._findings, self._skipped = target, findings, skipped
        self._copies: dict[int, Any] = {}
        self._waiting: list[tuple[Any, Any, str, bool]] = []
        self._attributes: list[tuple[Any, Any, str]] = []
        self._losses: list[dict[str, Any]] = []

    def run(self, *, checked: bool) -> None:
        """Copy everything; `checked` says whether the superblock has a checksum."""
        if "/" in self._skipped:
            self._findings.add("lost", "HDF5 does not survive reading the root group", "/")
            return
        self._findings.begin("/")
        try:
            root = h5py.h5g.open(self._file.id, b"/")
            address = h5py.h5o.get_info(root).addr
        except _ERRORS as error:
            self._findings.add("lost", f"the root group cannot be read ({first_line(error)})", "/")
            return
        copy = h5py.h5g.open(self._target.file.id, b"/")
        self._copies[address] = copy
        self._waiting.append((root, copy, "/", checked))
        while self._waiting:
            self._members(*self._waiting.pop())
        self._copy_attributes()
        self._target.note(copy, self._losses)

    # -- inside ----------------------------------------------------------------------------------

    def _copy_attributes(self) -> None:
        for source, copied, name in self._attributes:
            self._findings.begin(f"{name}@")
            if f"{name}@" in self._skipped:
                self._lose("HDF5 does not survive reading its attributes", name)
                continue
            for outcome, reason in copy_attributes(source, copied, self._refer):
                if outcome == "lost":
                    self._lose(reason, name)
                else:
                    self._findings.add("unchecked", reason, name)

    def _lose(self, reason: str, path: str) -> None:
        self._findings.add("lost", reason, path)
        self._losses.append({"object": path, "reason": reason})

    def _members(self, group: Any, copy: Any, path: str, checked: bool) -> None:
        checked = checked and is_checked_group(self._read, h5py.h5o.get_info(group).addr)
        if not checked:
            self._findings.add("unchecked", "the file has no checksum of the names of its members", path)
        self._attributes.append((group, copy, path))
        names: list[bytes] = []
        try:
            group.links.iterate(names.append)
        except _ERRORS as error:
            count = f"after {len(names)} members" if names else "of members"
            reason = f"its list {count} cannot be read ({first_line(error)})"
            self._lose(reason, path)
        for name in names:
            member = f"{path.rstrip('/')}/{decode_name(name)}"
            if member in self._skipped:
                self._lose("HDF5 does not survive reading it", member)
                continue
            self._findings.begin(member)
            try:
                self._member(group, copy, name, member, checked)
            except _ERRORS as error:
                self._lose(f"it cannot be read ({first_line(error)})", member)

    def _member(self, group: Any, copy: Any, name: bytes, path: str, checked: bool) -> None:
        kind = group.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT:
            copy.links.create_soft(name, group.links.get_val(name))
            return
        if kind == h5py.h5l.TYPE_EXTERNAL:
            copy.links.create_external(name, *group.links.get_val(name))
            return
        item = h5py.h5o.open(group, name)
        address = h5py.h5o.get_info(item).addr
        known = self._copies.get(address)
        if known is not None:
            h5py.h5o.link(known, copy, name)
            return
        if isinstance(item, h5py.h5g.GroupID):
            created = h5py.h5g.create(copy, name, None, _group_properties(item))
            self._copies[address] = created
            self._waiting.append((item, created, path, checked))
        elif isinstance(item, h5py.h5d.DatasetID):
            self._copies[address] = self._dataset(item, copy, name, path, checked)
        else:
            created = item.copy()
            created.commit(copy, name)
            self._copies[address] = created
            self._attributes.append((item, created, path))

    def _dataset(self, item: Any, copy: Any, name: bytes, path: str, checked: bool) -> Any:
        properties, kind = item.get_create_plist(), item.get_type().copy()
        offer_filters(filter_codes(properties))
        created = h5py.h5d.create(copy, name, kind, item.get_space(), properties)
        self._attributes.append((item, created, path))
        if properties.get_layout() == h5py.h5d.VIRTUAL:
            self._findings.add("kept", "a virtual dataset: its mappings, whose rows are in other files", path)
            return created
        if properties.get_external_count():
            self._findings.add("kept", "its rows are in other files", path)
            return created
        address = h5py.h5o.get_info(item).addr
        rows = RowCopy(
            item,
            created,
            self._raw,
            self._findings,
            path,
            checked=checked and is_checked_dataset(self._read, address),
            writes=self._target.writes,
        )
        try:
            rows.run()
        finally:
            self._target.note(created, rows.lost)
            self._losses += [{"object": path, **one} for one in rows.lost]
        return created

    def _read(self, address: int, count: int) -> bytes:
        return self._raw.read_at(self._base + address, count)

    def _refer(self, reference: Any) -> Any:
        """Return the reference to the copy of an object."""
        if not reference:
            return h5py.h5r.Reference()
        copy = self._copies.get(h5py.h5o.get_info(h5py.h5r.dereference(reference, self._file.id)).addr)
        if copy is None:
            return None
        return h5py.h5r.create(copy, b".", h5py.h5r.OBJECT)


def _group_properties(group: Any) -> Any:
    """Return properties for a group like another one; those of HDF5 have addresses of the old file."""
    old, new = group.get_create_plist(), h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    new.set_link_creation_order(old.get_link_creation_order())
    new.set_attr_creation_order(old.get_attr_creation_order())
    return new
