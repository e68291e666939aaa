"""A virtual dataset: the result points to the rows of the sources."""

from __future__ import annotations

import os

import h5py
import numpy as np

from shardkeep.errors import PlanError
from shardkeep.hdf5.merge.checks.table import Check
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Part
from shardkeep.hdf5.storage.casts import fits
from shardkeep.hdf5.storage.dtypes import same_file_type
from shardkeep.hdf5.storage.names import is_unicode
from shardkeep.hdf5.virtual.checked_sources import CheckedSource, is_settled, layout_digest

__all__ = ["point_to_sources", "relative_source", "virtual_checks"]


def relative_source(plan: MergePlan, number: int) -> str:
    """Return the path of a source as the result names it: relative to the folder of the result."""
    folder = os.path.dirname(os.path.abspath(plan.output))
    return os.path.relpath(plan.sources[number].path, folder)


def point_to_sources(file: h5py.File, one: DatasetPlan, plan: MergePlan) -> h5py.Dataset:
    """Create a virtual dataset over the parts of a plan."""
    # Low-level: h5py would make a selection object for each source, at twenty times the cost.
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    shape = (one.rows, *one.row_shape)
    space = h5py.h5s.create_simple(shape)
    # HDF5 puts block numbers in the place of "%b", so a "%" in a name is doubled.
    name = one.name.replace("%", "%%").encode("utf-8", "surrogateescape")
    files = {part.source: _virtual_name(plan, part.source) for part in one.parts}
    spaces = {part.source: h5py.h5s.create_simple((part.rows, *one.row_shape)) for part in one.parts}
    zeros = (0,) * len(one.row_shape)
    if one.keyed and plan.key is not None:
        for first, rows, sources, source_rows in plan.key.runs():
            for row, count, source, source_row in np.column_stack(
                [first, rows, sources, source_rows]
            ).tolist():
                space.select_hyperslab((row, *zeros), (count, *one.row_shape))
                spaces[source].select_hyperslab((source_row, *zeros), (count, *one.row_shape))
                properties.set_virtual(space, files[source], name, spaces[source])
    else:
        for part in one.parts:
            space.select_hyperslab((part.first_row, *zeros), (part.rows, *one.row_shape))
            properties.set_virtual(space, files[part.source], name, spaces[part.source])
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind = h5py.h5t.decode(one.layout.type_code)
    whole = h5py.h5s.create_simple(shape)
    name = one.name.encode("utf-8", "surrogateescape")
    return h5py.Dataset(h5py.h5d.create(file.id, name, kind, whole, properties, links))


def _virtual_name(plan: MergePlan, number: int) -> bytes:
    name = relative_source(plan, number)
    if not is_unicode(name):
        message = f"{name!r} is no Unicode text, which h5py could not read back from a virtual file"
        raise PlanError(f'{message}: rename it, or use mode="copy"', path=plan.sources[number].path)
    return name.replace("%", "%%").encode()


def virtual_checks(dataset: h5py.Dataset, one: DatasetPlan, plan: MergePlan) -> list[Check]:
    """Return the hashes of the sources' rows, and in which state the sources were when they were read."""
    # As whoever opens the result will see it.
    digest = layout_digest(dataset.shape, dataset.id.get_type())
    return [
        Check(
            one.name,
            -1 if one.keyed else part.first_row,
            part.rows,
            "rows",
            int(part.crc32c or "0", 16),
            relative_source(plan, part.source),
            _state(part, one, plan, digest),
        )
        for part in one.parts
    ]


def _state(part: Part, one: DatasetPlan, plan: MergePlan, digest: str) -> CheckedSource | None:
    version = plan.source_versions[part.source]
    equal = same_file_type(part.layout.type_code, one.layout.type_code)
    if (
        version.may_grow
        or not is_settled(version.mtime_ns, plan.begun_ns)
        or not (equal or fits(part.dtype, one.dtype))
    ):
        return None
    offset = part.offset_bytes if equal and part.offset_bytes is not None else -1
    return CheckedSource(version.size_bytes, version.mtime_ns, part.rows, offset, digest)
