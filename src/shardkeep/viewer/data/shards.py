"""The view of a data set: its shards with their records, indexes and faults."""

from __future__ import annotations

from dataclasses import dataclass

from shardkeep.errors import ShardkeepError
from shardkeep.files.kinds.kind import identify
from shardkeep.tfrecord.shard_names import find_set_faults
from shardkeep.viewer.data.data_set import DataSet, ShardState, data_sets, state_of
from shardkeep.viewer.locations import Location
from shardkeep.viewer.view import Answer, Page, View, Visit

__all__ = ["SHARDS", "chosen_set"]

_ROWS = 100


@dataclass(frozen=True)
class _Row:
    location: Location
    size_bytes: int
    state: ShardState
    health: str
    is_bad: bool


def _fits(location: Location) -> bool:
    return location.is_folder and bool(data_sets(location.path))


def chosen_set(visit: Visit) -> DataSet:
    """Return the data set that the address names, or the one with most shards."""
    folder = visit.location.path
    return state_of(folder, visit.query.choice("set", list(data_sets(folder))))


def _show(visit: Visit) -> Answer:
    found = chosen_set(visit)
    only_faulty = visit.query.text("only") == "faulty"
    numbers = [i for i in range(len(found.names)) if found.states[i].fault or not only_faulty]
    paging = visit.query.paging(_ROWS, len(numbers))
    rows = [_row(visit.location, found, number) for number in numbers[paging.here]]
    findings = [f"{one.pattern}: {one.text}" for one in find_set_faults(found.names)]
    return Page(
        "data_set.html",
        {
            "set": found,
            "sets": data_sets(visit.location.path),
            "rows": rows,
            "findings": findings,
            "only_faulty": only_faulty,
            "paging": paging,
        },
    )


def _row(folder: Location, found: DataSet, number: int) -> _Row:
    location = folder.child(found.names[number])
    state = found.states[number]
    health, is_bad = _health(location, state)
    return _Row(location, int(found.sizes[number]), state, health, is_bad)


def _health(location: Location, state: ShardState) -> tuple[str, bool]:
    """Return a text about a shard, and True if it is damaged."""
    if location.leads_out:
        return "a link to a file elsewhere", True
    try:
        kind = identify(location.path)
    except (ShardkeepError, OSError):
        return "cannot be read", True
    if kind.name == "empty":
        return "empty", False
    if kind.name != "tfrecord":
        return f"not a TFRecord file: {kind.described}", True
    if state.fault:
        return state.fault, True
    if kind.compression is not None:
        return f"{kind.compression}-compressed", False
    return ("headers are whole" if state.records is not None else "not checked"), False


SHARDS = View("data", "Data set", _fits, _show)
