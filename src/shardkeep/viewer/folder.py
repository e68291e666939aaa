"""The view of a folder: its files with kind and size; of another file: its kind."""

from __future__ import annotations

import os
from dataclasses import dataclass

from shardkeep.files.kinds.kind import identify
from shardkeep.viewer.locations import Location
from shardkeep.viewer.view import Answer, Page, View, Visit

__all__ = ["FILES"]

_ROWS = 200


@dataclass(frozen=True)
class _Entry:
    location: Location
    described: str
    size_bytes: int | None
    modified_s: float | None


def _show(visit: Visit) -> Answer:
    location = visit.location
    if not location.is_folder:
        status = os.stat(location.path)
        return Page(
            "file.html", {"kind": location.kind, "size_bytes": status.st_size, "modified_s": status.st_mtime}
        )
    names = sorted(os.listdir(location.path), key=os.fsencode)
    wanted = visit.query.text("find")
    if wanted:
        names = [name for name in names if wanted in name]
    paging = visit.query.paging(_ROWS, len(names))
    entries = [_entry(location.child(name)) for name in names[paging.here]]
    return Page("folder.html", {"entries": entries, "find": wanted, "paging": paging})


def _entry(location: Location) -> _Entry:
    if location.leads_out:
        return _Entry(location, "a link to a file elsewhere", None, None)
    try:
        status = os.stat(location.path)
        described = identify(location.path).described
    except OSError as error:
        is_link = os.path.islink(location.path)
        return _Entry(location, "a broken link" if is_link else f"not readable: {error.strerror}", None, None)
    size_bytes = None if os.path.isdir(location.path) else status.st_size
    return _Entry(location, described, size_bytes, status.st_mtime)


FILES = View("files", "Files", lambda location: True, _show)
