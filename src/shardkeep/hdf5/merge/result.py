"""Objects of a merged file that need no copy of rows: values, links, named types, virtual datasets.

All objects are first created in memory while the merge is planned (`versions_of`), so that an object that
HDF5 refuses to create is an error of the plan, also in a dry run, before a byte is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import PlanError, SchemaError
from shardkeep.hdf5.merge.checks import Check
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Part
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.storage.attributes import Attributes, attributes_crc, read_attributes
from shardkeep.hdf5.storage.casts import fits
from shardkeep.hdf5.storage.content_hash import value_crc
from shardkeep.hdf5.storage.dtypes import same_file_type, vlen_base
from shardkeep.hdf5.storage.layout import create_dataset, create_object, limits_of, properties_of
from shardkeep.hdf5.storage.names import PUT, RANKS, encode_name, is_unicode
from shardkeep.hdf5.virtual.checked_sources import CheckedSource, is_settled, layout_digest

__all__ = [
    "create_virtual",
    "name_checks",
    "values_crc",
    "versions_of",
    "virtual_checks",
    "write_group",
    "write_links",
    "write_values",
]

# The types of sources of HDF5 1.12 and later (`libver="latest"`) have encodings that 1.10 lacks.
_NEWEST = (H5_VERSIONS[0], "latest")
_REFUSALS = (OSError, RuntimeError, ValueError, TypeError, KeyError, OverflowError)


def versions_of(plan: MergePlan) -> tuple[str, str]:
    """Return the oldest format versions (`libver`) that can hold everything in the plan.

    Raises
    ------
    SchemaError
        No format can.
    """
    if next(_refused(plan, H5_VERSIONS), None) is None:
        return H5_VERSIONS
    for what, reason in _refused(plan, _NEWEST):
        path = plan.sources[0].path
        message = f"HDF5 cannot create {what} of {path!r} in the merged file ({reason})"
        raise SchemaError(f"{message}: leave it out, or store it as another type", path=path)
    return _NEWEST


def _refused(plan: MergePlan, versions: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Create all objects; yield those that HDF5 refuses, and its reason."""
    core: dict[str, Any] = {"driver": "core", "backing_store": False, "libver": versions}
    with h5py.File("plan", "w", track_order="" in plan.orders, **core) as file:
        for name in plan.groups:
            try:
                write_group(file, plan, name)
            except _REFUSALS as error:
                yield f"group {name or '/'!r}", first_line(error)
        for one in plan.datasets:
            try:
                one.attributes.write(_create_empty(file, one))
            except _REFUSALS as error:
                yield f"dataset {one.name!r}", first_line(error)
        try:
            write_links(file, plan)
        except _REFUSALS as error:
            yield "a link or named type", first_line(error)


def _create_empty(file: h5py.File, one: DatasetPlan) -> h5py.Dataset:
    if not one.has_rows:
        # HDF5 refuses no number, and there may be many.
        return write_values(file, one, store=one.dtype.kind in "OV")
    layout = replace(one.layout, chunks=None, filters=()) if one.strategy == "virtual" else one.layout
    return create_dataset(file, one.name, layout, (one.rows, *one.row_shape))


# -- values, groups and links ------------------------------------------------------------------------------


def write_values(file: h5py.File, one: DatasetPlan, *, store: bool = True) -> h5py.Dataset:
    """Write a value that all sources have, or one row for each rank and the numbers of the ranks.

    Without `store` the dataset is created and stays empty.
    """
    dataset: h5py.Dataset
    if one.strategy == "constant":
        value = one.values[0][1]
        kind, space = h5py.h5t.py_create(one.dtype, logical=True), _value_space(value, one.dtype)
        if one.exact is not None:
            kind, space = one.exact.kind, one.exact.space
        dataset = create_object(file, one.name, kind, space, properties_of(one.layout))
        if store and one.exact is not None:
            one.exact.write(dataset.id)
        elif store and dataset.size:
            dataset[...] = value
        if one.put:
            dataset.attrs[PUT] = True
        return dataset
    values = [value for _, value in one.values]
    dataset = file.create_dataset(one.name, (len(values), *_value_shape(values[0], one.dtype)), one.dtype)
    for row, value in enumerate(values if store else ()):
        dataset[row] = value
    dataset.attrs[RANKS] = np.array([rank for rank, _ in one.values], "<i4")
    return dataset


def values_crc(one: DatasetPlan) -> int:
    """Return the hash that the dataset of `write_values` must have."""
    crc = 0
    for _, value in one.values[:1] if one.strategy == "constant" else one.values:
        crc = value_crc(value, one.dtype, crc)
    return crc


def _value_space(value: Any, dtype: np.dtype[Any]) -> h5py.h5s.SpaceID:
    if isinstance(value, h5py.Empty):
        return h5py.h5s.create(h5py.h5s.NULL)
    return h5py.h5s.create_simple(_value_shape(value, dtype))


def _value_shape(value: Any, dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return the shape of the dataset that h5py reads as this value."""
    shape: tuple[int, ...] = np.shape(value)
    if dtype.subdtype is not None:
        return shape[: len(shape) - len(dtype.shape)]
    # h5py reads a scalar of variable length as its numbers, whose shape is not that of the dataset.
    single = vlen_base(dtype) is not None and not np.asarray(value).dtype.hasobject
    return () if single else shape


def write_group(file: h5py.File, plan: MergePlan, name: str) -> None:
    """Create a group with its attributes; ``""`` is the file; named types are created by `write_links`."""
    if name in plan.links:
        return
    order = plan.orders.get(name)
    if name and order is not None:
        properties = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
        properties.set_link_creation_order(order.links)
        properties.set_attr_creation_order(order.attributes)
        h5py.h5g.create(file.id, encode_name(name), lcpl=_link_creation(), gcpl=properties)
    plan.groups[name].write(file.require_group(name) if name else file)


def write_links(file: h5py.File, plan: MergePlan) -> None:
    """Create named types and links after all datasets and groups; put the links of groups in order."""
    creation = _link_creation()
    # Types first: a hard link may be another name of one.
    for name, link in plan.links.items():
        if link.kind == "type":
            h5py.h5t.decode(link.code).commit(file.id, encode_name(name), lcpl=creation)
            if name in plan.groups:
                plan.groups[name].write(file[name])
    for name, link in plan.links.items():
        if link.kind == "hard":
            file.id.links.create_hard(encode_name(name), file.id, encode_name(link.target), lcpl=creation)
        elif link.kind == "soft":
            file.id.links.create_soft(encode_name(name), encode_name(link.target), lcpl=creation)
    for name, order in plan.orders.items():
        if name not in plan.links:
            order.restore(file[name] if name else file)


def _link_creation() -> h5py.h5p.PropLCID:
    properties = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    properties.set_create_intermediate_group(True)
    properties.set_char_encoding(h5py.h5t.CSET_UTF8)
    return properties


def name_checks(file: h5py.File, plan: MergePlan) -> Iterator[Check]:
    """Yield the hash of the attributes of each object, and of each link.

    Attributes are hashed as they were read from the sources; attributes that the merge itself adds are
    hashed as they are in the result.
    """
    owners = {one.name: one.attributes for one in plan.datasets}
    owners |= {name or "/": attributes for name, attributes in plan.groups.items()}
    owners["_provenance"] = Attributes()
    for name, attributes in owners.items():
        there, _ = read_attributes(file[name])
        crc = attributes_crc(attributes.joined(there))
        yield Check(name, 0, 0, "attributes", crc)
    for name, link in plan.links.items():
        yield Check(name, 0, 0, "link", link.crc32c)


# -- virtual datasets --------------------------------------------------------------------------------------


def create_virtual(file: h5py.File, one: DatasetPlan, plan: MergePlan) -> h5py.Dataset:
    """Create a virtual dataset that points to the rows of the sources."""
    # Low-level: h5py would make a selection object for each source, at twenty times the cost.
    properties = properties_of(one.layout)
    shape = (one.rows, *one.row_shape)
    space = h5py.h5s.create_simple(shape)
    # HDF5 replaces "%b" by the number of a block, so a "%" in a name is doubled.
    source_name = encode_name(one.name.replace("%", "%%"))
    files = {part.source: _source_file(plan, part.source) for part in one.parts}
    spaces = {part.source: h5py.h5s.create_simple((part.rows, *one.row_shape)) for part in one.parts}
    zeros = (0,) * len(one.row_shape)
    if one.keyed and plan.key is not None:
        for columns in plan.key.runs():
            for row, count, source, source_row in np.column_stack(columns).tolist():
                space.select_hyperslab((row, *zeros), (count, *one.row_shape))
                spaces[source].select_hyperslab((source_row, *zeros), (count, *one.row_shape))
                properties.set_virtual(space, files[source], source_name, spaces[source])
    else:
        for part in one.parts:
            space.select_hyperslab((part.first_row, *zeros), (part.rows, *one.row_shape))
            properties.set_virtual(space, files[part.source], source_name, spaces[part.source])
    whole = h5py.h5s.create_simple(shape, limits_of(one.layout, shape))
    return create_object(file, one.name, one.layout.kind, whole, properties)


def virtual_checks(dataset: h5py.Dataset, one: DatasetPlan, plan: MergePlan) -> list[Check]:
    """Return the hashes of the rows of all sources, and the state of each source when it was read."""
    # Of the dataset as a reader will find it.
    digest = layout_digest(dataset.shape, dataset.id.get_type())
    return [
        Check(
            one.name,
            -1 if one.keyed else part.first_row,
            part.rows,
            "rows",
            int(part.crc32c or "0", 16),
            plan.relative_paths[part.source],
            _checked_source(part, one, plan, digest),
        )
        for part in one.parts
    ]


def _checked_source(part: Part, one: DatasetPlan, plan: MergePlan, digest: str) -> CheckedSource | None:
    version = plan.source_versions[part.source]
    equal = same_file_type(part.layout.type_code, one.layout.type_code)
    if version.may_grow or not is_settled(version.mtime_ns, plan.begun_ns):
        return None
    if not equal and not fits(part.dtype, one.dtype):
        return None
    offset = part.offset_bytes if equal and part.offset_bytes is not None else -1
    return CheckedSource(version.size_bytes, version.mtime_ns, part.rows, offset, digest)


def _source_file(plan: MergePlan, number: int) -> bytes:
    name = plan.relative_paths[number]
    if not is_unicode(name):
        message = f"{name!r} is not valid UTF-8, so h5py could not read it back from a virtual file"
        raise PlanError(f'{message}: rename it, or use mode="copy"', path=plan.sources[number].path)
    return name.replace("%", "%%").encode()
