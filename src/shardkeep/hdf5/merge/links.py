"""Links and named types of the result, and the hashes of these and of attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import h5py

from shardkeep.hdf5.merge.checks.table import Check
from shardkeep.hdf5.sources.links import LinkLook
from shardkeep.hdf5.storage.attributes import Attributes, attributes_crc, read_attributes

if TYPE_CHECKING:
    from shardkeep.hdf5.merge.plan import MergePlan

__all__ = ["name_checks", "write_links"]


def write_links(file: h5py.File, links: Mapping[str, LinkLook], attributes: Mapping[str, Attributes]) -> None:
    """Put the names of a plan into a file that has all its datasets and groups.

    Parameters
    ----------
    file : h5py.File
    links : dict
        Of the plan.
    attributes : dict
        Of named types, by their names; others are passed over.
    """
    creation = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    creation.set_create_intermediate_group(True)
    creation.set_char_encoding(h5py.h5t.CSET_UTF8)
    # Types first: a hard link may be another name of one.
    for name, link in links.items():
        if link.kind == "type":
            h5py.h5t.decode(link.code).commit(file.id, _encoded(name), lcpl=creation)
            if name in attributes:
                attributes[name].write(file[name])
    for name, link in links.items():
        if link.kind == "hard":
            file.id.links.create_hard(_encoded(name), file.id, _encoded(link.target), lcpl=creation)
        elif link.kind == "soft":
            file.id.links.create_soft(_encoded(name), _encoded(link.target), lcpl=creation)


def name_checks(file: h5py.File, plan: MergePlan) -> Iterator[Check]:
    """Give the hash of the attributes of each object, and of each link.

    Attributes are hashed as they were read from the sources; those that the merge itself puts beside
    them, as they are in the result.
    """
    owners = {one.name: one.attributes for one in plan.datasets}
    owners |= {name or "/": attributes for name, attributes in plan.groups.items()}
    owners["_provenance"] = Attributes()
    for name, attributes in owners.items():
        there, _ = read_attributes(file[name])
        crc = attributes_crc(Attributes({**there.values, **attributes.values}))
        yield Check(name, 0, 0, "attributes", crc)
    for name, link in plan.links.items():
        yield Check(name, 0, 0, "link", link.crc32c)


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
