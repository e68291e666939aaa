"""The objects of a merged file without their rows, created in memory while the merge is planned.

What HDF5 refuses to create becomes an error of the plan: the dry run has it too, and no byte is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import h5py

from shardkeep.errors import SchemaError
from shardkeep.hdf5.merge.links import write_links
from shardkeep.hdf5.merge.schema.values import write_values
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.storage.layout import create_dataset

if TYPE_CHECKING:
    from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan

__all__ = ["versions_of"]

# The types of sources of HDF5 1.12 and later (`libver="latest"`) are encoded in ways that 1.10 does not have.
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
    """Create all objects; give those that HDF5 refuses, and its reason."""
    with h5py.File("plan", "w", driver="core", backing_store=False, libver=versions) as file:
        for one in plan.datasets:
            try:
                one.attributes.write(_create(file, one))
            except _REFUSALS as error:
                yield f"dataset {one.name!r}", first_line(error)
        for name, attributes in plan.groups.items():
            if name not in plan.links:
                try:
                    attributes.write(file.require_group(name) if name else file)
                except _REFUSALS as error:
                    yield f"group {name or '/'!r}", first_line(error)
        try:
            write_links(file, plan.links, plan.groups)
        except _REFUSALS as error:
            yield "a link or named type", first_line(error)


def _create(file: h5py.File, one: DatasetPlan) -> h5py.Dataset:
    if one.way in ("constant", "ranks"):
        # Numbers can be stored for sure, and may be many.
        return write_values(file, one, store=one.dtype.kind in "OV")
    layout = replace(one.layout, chunks=None, filters=()) if one.way == "virtual" else one.layout
    return create_dataset(file, one.name, layout, (one.rows, *one.row_shape), one.dtype)
