"""Members of groups, attributes, and facts about datasets, for one page."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import h5py

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.merge.provenance import PROVENANCE, read_findings
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5
from shardkeep.hdf5.sources.receipts import RECEIPTS
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.dtypes import describe_type
from shardkeep.hdf5.storage.names import decode_name, is_own_table
from shardkeep.hdf5.virtual.source_search import SourceSearch
from shardkeep.viewer.hdf5.child.cells import cell
from shardkeep.viewer.hdf5.child.limits import ATTRIBUTES, MEMBERS
from shardkeep.viewer.hdf5.child.opening import OpenFile, resolved, shown_path

__all__ = ["attributes", "dataset_facts", "group_facts", "merge_facts"]

# HDF5 sorts all names of a large group before it returns the first one.
_MOST_SORTED = 20_000
# HDF5 reads the index of all chunks to add their sizes.
_MOST_CHUNKS = 100_000
_MOST_BYTES = 64 * 1024
_SOURCES = 20


def group_facts(file: OpenFile, group: h5py.h5g.GroupID, first: int) -> dict[str, Any]:
    """Return some members of a group: names, kinds, types and sizes."""
    total = len(group)
    first = min(first, max(0, total - 1)) // MEMBERS * MEMBERS
    is_sorted = total <= _MOST_SORTED
    names: list[bytes] = []
    if total:
        order = h5py.h5.ITER_INC if is_sorted else h5py.h5.ITER_NATIVE
        group.links.iterate(_adding(names, MEMBERS), idx_type=h5py.h5.INDEX_NAME, order=order, idx=first)
    members = [_member(file, group, name) for name in names]
    return {"first": first, "total": total, "is_sorted": is_sorted, "members": members}


def _member(file: OpenFile, group: h5py.h5g.GroupID, name: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"name": decode_name(name)}
    try:
        kind = group.links.get_info(name).type
        if kind == h5py.h5l.TYPE_SOFT:
            return {**found, "kind": "link", "target": decode_name(group.links.get_val(name))}
        if kind == h5py.h5l.TYPE_EXTERNAL:
            target, inside = map(decode_name, group.links.get_val(name))
            return {
                **found,
                "kind": "external",
                "target": target,
                "inside": inside,
                "path": resolved(file, target),
            }
        if kind != h5py.h5l.TYPE_HARD:
            return {**found, "kind": "other", "text": "a link of an unknown class", "is_damaged": False}
        item = h5py.h5o.open(group, name)
        if isinstance(item, h5py.h5g.GroupID):
            return {
                **found,
                "kind": "group",
                "members": len(item),
                "attributes": h5py.h5a.get_num_attrs(item),
            }
        if isinstance(item, h5py.h5d.DatasetID):
            count = h5py.h5a.get_num_attrs(item)
            return {**found, "kind": "dataset", "attributes": count, **_storage(item)}
        return {**found, "kind": "other", "text": f"a named type: {describe_type(item)}", "is_damaged": False}
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        return {**found, "kind": "other", "text": f"cannot be read: {first_line(error)}", "is_damaged": True}


def dataset_facts(file: OpenFile, dataset: h5py.h5d.DatasetID) -> dict[str, Any]:
    """Return shape, type and storage of a dataset, with files other than this one that have its rows."""
    properties = dataset.get_create_plist()
    facts = _storage(dataset)
    sources = []
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        facts["mappings"] = properties.get_virtual_count()
        search = SourceSearch(file.path, merged=True)
        for index in range(min(_SOURCES, facts["mappings"])):
            name = properties.get_virtual_filename(index)
            path = os.fsdecode(search.find(os.fsencode(name)))
            at = properties.get_virtual_dsetname(index)
            sources.append({"file": name, "dataset": at, "path": shown_path(file, path)})
    return {**facts, "sources": sources}


def _storage(dataset: h5py.h5d.DatasetID) -> dict[str, Any]:
    properties = dataset.get_create_plist()
    chunks = properties.get_chunk() if properties.get_layout() == h5py.h5d.CHUNKED else None
    is_null = dataset.get_space().get_simple_extent_type() == h5py.h5s.NULL
    shape = () if is_null else dataset.shape
    count = math.prod(-(-n // m) for n, m in zip(shape, chunks, strict=True)) if chunks else 1
    filters = (properties.get_filter(i) for i in range(properties.get_nfilters()))
    return {
        "shape": None if is_null else list(shape),
        "type": describe_type(dataset.get_type())[:400],
        "chunks": None if chunks is None else list(chunks),
        "filters": [_filter(*one) for one in filters],
        "stored_bytes": dataset.get_storage_size() if count <= _MOST_CHUNKS else None,
        "value_bytes": math.prod(shape) * dataset.get_type().get_size(),
        "is_virtual": properties.get_layout() == h5py.h5d.VIRTUAL,
        "is_external": properties.get_external_count() > 0,
    }


def _filter(code: int, _flags: int, values: Any, name: bytes) -> str:
    text = name.decode("utf-8", "backslashreplace") or f"filter {code}"
    return f"{text} {values[0]}" if code == h5py.h5z.FILTER_DEFLATE and len(values) else text


def attributes(item: Any) -> list[dict[str, str]]:
    """Return the first attributes of an object: name, type and value as texts."""
    names: list[bytes] = []
    if h5py.h5a.get_num_attrs(item):
        h5py.h5a.iterate(item, _adding(names, ATTRIBUTES))
    return [_attribute(item, name) for name in names]


def _adding(names: list[bytes], most: int) -> Callable[[bytes], bool | None]:
    """Return a callback of HDF5 that adds each name to a list, and ends the iteration when it is long."""

    def visit(name: bytes) -> bool | None:
        names.append(name)
        return True if len(names) == most else None

    return visit


def _attribute(item: Any, name: bytes) -> dict[str, str]:
    found = {"name": decode_name(name), "type": "", "value": ""}
    try:
        attribute = h5py.h5a.open(item, name)
        kind = attribute.get_type()
        found["type"] = describe_type(kind)[:200]
        shape = attribute.shape
        if shape and math.prod(shape) * kind.get_size() > _MOST_BYTES:
            found["value"] = f"{math.prod(shape):,} values"
        else:
            value = h5py.AttributeManager(SimpleNamespace(id=item))[name]
            found["value"] = cell(in_stored_order(value, attribute.dtype), attribute.dtype)
    except Exception as error:
        if not is_of_hdf5(error) and not isinstance(error, ShardkeepError):
            raise
        found["value"] = f"cannot be read: {first_line(error)}"
    return found


def merge_facts(file: OpenFile) -> dict[str, Any] | None:
    """Return order, folder and findings of a merge; None for a file that no merge wrote."""
    if not file.fid.links.exists(PROVENANCE.encode()) or not is_own_table(file.fid, PROVENANCE):
        return None
    with_names = h5py.File(file.fid)
    table = with_names[PROVENANCE].attrs
    root, order_by = (
        one.decode("utf-8", "surrogateescape") if isinstance(one, bytes) else str(one)
        for one in (table.get("root", ""), table.get("order_by", ""))
    )
    has_receipts = file.fid.links.exists(RECEIPTS.encode())
    return {
        "root": root,
        "order_by": order_by,
        "findings": list(read_findings(with_names)),
        "has_receipts": has_receipts,
    }
