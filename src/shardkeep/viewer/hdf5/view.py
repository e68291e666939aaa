"""The view of an HDF5 file: its groups, and the rows, curves and images of its datasets."""

from __future__ import annotations

import base64
import os
from dataclasses import replace

from shardkeep.errors import NotFoundError
from shardkeep.viewer.hdf5.child.limits import COLUMNS, MEMBERS, ROWS
from shardkeep.viewer.hdf5.processes import ask
from shardkeep.viewer.locations import Location
from shardkeep.viewer.view import Answer, Data, Json, Page, Paging, Query, View, Visit

__all__ = ["CONTENTS"]


def _show(visit: Visit) -> Answer:
    location, query = visit.location, visit.query
    at = _path(query)
    first = query.integer("first", 0)
    if visit.part == "curve":
        stop = query.integer("stop", 0)
        return Json(ask(location, at, "curve", first=first, stop=stop, field=query.text("field")))
    if visit.part == "picture":
        return Data(base64.b64decode(ask(location, at, "picture", first=first)["png"]), "image/png")
    found = ask(
        location,
        at,
        query.choice("show", ("rows", "plot", "image")),
        first=first,
        stop=query.integer("stop", 0),
        column=query.integer("column", 0),
        field=query.text("field"),
    )

    def address(path: str, **parameters: object) -> str:
        return location.address("hdf5", **_parameters(path), **parameters)

    def elsewhere(path: str | None, inside: str, **parameters: object) -> str | None:
        return path and _other(location, path).address("hdf5", **_parameters(inside), **parameters)

    values = {**found, "address": address, "elsewhere": elsewhere, "trail": _trail(at), "join": _join}
    values["place"] = _parameters(at)
    if found["kind"] == "group":
        paging = Paging(found["first"], MEMBERS, found["total"])
        return Page("hdf5/group.html", {**values, "paging": paging})
    if found["kind"] == "dataset":
        total = (found["shape"] or [0])[0]
        span = {"first": min(first, total), "stop": min(query.integer("stop", 0) or total, total)}
        limits = {"rows_per_page": ROWS, "columns_per_page": COLUMNS}
        return Page("hdf5/dataset.html", {**values, **span, **limits})
    return Page("hdf5/type.html", values)


def _parameters(path: str) -> dict[str, str]:
    """Return the parameters of an address for a path; one that is not UTF-8 has its bytes as hex digits."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return {"bytes": path.encode("utf-8", "surrogateescape").hex()}
    return {"at": path}


def _path(query: Query) -> str:
    digits = query.text("bytes")
    if not digits:
        return query.text("at") or "/"
    try:
        return bytes.fromhex(digits).decode("utf-8", "surrogateescape")
    except ValueError:
        raise NotFoundError("no object has this address") from None


def _trail(path: str) -> list[tuple[str, str]]:
    """Return name and path of each group on the way to an object, and of the object."""
    names = [name for name in path.split("/") if name]
    return [(name, "/" + "/".join(names[: count + 1])) for count, name in enumerate(names)]


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _other(location: Location, path: str) -> Location:
    """Return the location of a file below the same root."""
    below = os.path.relpath(path, location.root)
    return replace(location, parts=() if below == os.curdir else tuple(below.split(os.sep)), path=path)


def _fits(location: Location) -> bool:
    return location.kind.name == "hdf5"


CONTENTS = View("hdf5", "Contents", _fits, _show)
