"""The answers of the child.

A question has the arguments of `answer`. An answer is ``{"found": …}``, or ``{"error": [class, message]}``.
"""

from __future__ import annotations

import resource
import signal
from dataclasses import replace
from typing import Any

import h5py

from shardkeep.errors import ShardkeepError, UntrustedFileError
from shardkeep.files.child_python import serve
from shardkeep.hdf5.segments.commit_record import read_record
from shardkeep.hdf5.sources.receipts import RECEIPTS, receipts_in
from shardkeep.hdf5.sources.source import Source
from shardkeep.hdf5.storage.dtypes import describe_type
from shardkeep.plan.proof.description import DescribedReceipt, describe
from shardkeep.viewer.hdf5.child.contents import attributes, dataset_facts, group_facts, merge_facts
from shardkeep.viewer.hdf5.child.opening import OpenFile, find, open_file, reading_in_limits
from shardkeep.viewer.hdf5.child.pictures import can_show, picture_of
from shardkeep.viewer.hdf5.child.plots import can_plot, plot_of
from shardkeep.viewer.hdf5.child.rows import rows_of
from shardkeep.viewer.hdf5.child.values import Values

__all__ = ["answer", "main"]

_WORK_S = 5.0
# For one request, more than the modules need.
_MEMORY_BYTES = 256 * 1024 * 1024


def main() -> None:
    """Serve until standard input ends."""
    _limit_memory()
    serve(_in_time)


def _in_time(question: dict[str, Any]) -> dict[str, Any]:
    # HDF5 may be in an endless loop, where Python handles no signal: the system ends the process.
    signal.setitimer(signal.ITIMER_PROF, _WORK_S)
    try:
        return {"found": answer(**question)}
    except (ShardkeepError, OSError) as error:
        kind = type(error).__name__ if isinstance(error, ShardkeepError) else "OSError"
        return {"error": [kind, str(error)]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def answer(
    path: str, root: str, at: str, show: str, first: int = 0, column: int = 0, field: str = "", stop: int = 0
) -> dict[str, Any]:
    """Answer one question.

    Parameters
    ----------
    path : str
        Real path of the file.
    root : str
        The folder or file outside of which nothing is read.
    at : str
        Path of an object in the file.
    show : {"rows", "plot", "image", "curve", "picture", "commit", "receipts"}
        The page with rows, a plot or an image, or only the curve, the picture, the commit or the receipts.
    first, column, field, stop
        The rows, columns, field of a compound type, and last row that are shown; the image is `first`.
    """
    with open_file(path, root) as file:
        item = find(file, at)
        if show == "commit":
            return _commit(file)
        if show == "receipts":
            return {"receipts": _receipts(file)}
        if show in ("curve", "picture"):
            values = Values(file, item, at)
            return plot_of(values, field, first, stop) if show == "curve" else picture_of(values, first)
        found: dict[str, Any] = {
            "at": at,
            "attributes": attributes(item),
            "collected": file.collected,
            "attribute_count": h5py.h5a.get_num_attrs(item),
        }
        if isinstance(item, h5py.h5g.GroupID):
            merged = merge_facts(file) if at.strip("/") == "" else None
            found |= {"kind": "group", "merged": merged, **group_facts(file, item, first)}
        elif isinstance(item, h5py.h5d.DatasetID):
            found |= {"kind": "dataset", **dataset_facts(file, item)}
            found |= _shown(file, item, at, show, first, column, field, stop)
        else:
            found |= {"kind": "type", "type": describe_type(item)}
        return {**found, "is_changed": file.is_changed}


def _shown(
    file: OpenFile, item: Any, at: str, show: str, first: int, column: int, field: str, stop: int
) -> dict[str, Any]:
    """Return the rows, and which other forms there are; an error is part of the page."""
    found: dict[str, Any] = {"forms": ["rows"], "show": "rows", "problem": None, "rows": None}
    if item.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        return {**found, "problem": "The dataset has no values: its dataspace is null."}
    try:
        with reading_in_limits(file.path, at):
            values = Values(file, item, at)
            fields, images = can_plot(values), can_show(values)
            found |= {"fields": fields, "images": images}
            found["forms"] += ["plot"] * bool(fields) + ["image"] * bool(images)
            found["show"] = show if show in found["forms"] else "rows"
            if found["show"] == "rows":
                found["rows"] = rows_of(file, values, at, first, column)
            elif found["show"] == "image":
                picture = picture_of(values, first)
                found["picture"] = {name: one for name, one in picture.items() if name != "png"}
            else:
                field = field if field in fields else fields[0]
                found["plot"] = {"field": field, **_summary(plot_of(values, field, first, stop))}
    except ShardkeepError as error:
        found["problem"] = str(error)
    return found


def _commit(file: OpenFile) -> dict[str, Any]:
    """Return the commit record of a segment, without the state of the program; None for another file."""
    record = read_record(h5py.File(file.fid), file.path)
    return {"record": None if record is None else replace(record, state=None, marks=()).to_json()}


def _receipts(file: OpenFile) -> list[dict[str, Any]]:
    """Return the receipts of a merged file, and the descriptions of their data sets."""
    properties = find(file, RECEIPTS).get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise UntrustedFileError(
            f"{RECEIPTS!r} of {file.path!r} has its rows in another file", path=file.path
        )
    found = list(receipts_in(Source(file.path, h5py.File(file.fid))).values())
    described = {one["dataset"]["fingerprint"]: one for one in found if isinstance(one, DescribedReceipt)}
    return [*found, *(describe(one.describe()) for one in described.values())]


def _summary(plot: dict[str, Any]) -> dict[str, Any]:
    numbers = [one for series in plot["series"] for one in series["values"] if one is not None]
    low, high = min(numbers, default=None), max(numbers, default=None)
    return {"read": plot["read"], "points": len(plot["x"]), "low": low, "high": high}


def _limit_memory() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limit = used + _MEMORY_BYTES
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
