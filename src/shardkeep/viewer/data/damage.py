"""The view of damage in a TFRecord file: a byte map, the damaged ranges, and the bytes at a place."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass

from shardkeep._paths_in_messages import repair_command
from shardkeep.jobs.salvage.report import RepairedPart
from shardkeep.viewer.data.check import check_of
from shardkeep.viewer.data.hex_lines import LINE_BYTES, hex_lines, marks_of
from shardkeep.viewer.data.record_file import open_records
from shardkeep.viewer.data.records import has_records
from shardkeep.viewer.view import Answer, Page, View, Visit

__all__ = ["DAMAGE", "MapRun", "byte_map"]

# Smaller files are checked without a request.
_SMALL_BYTES = 8 << 20
_WAIT_S = 0.1
_COLUMNS, _LINES = 64, 16
_ROWS = 100
_VIEW_BYTES = 512
_WORDS = {"repaired": "repairable", "lost": "lost", "unchecked": "not checked"}
_WORSE = ("kept", "unchecked", "repaired", "lost")


@dataclass(frozen=True)
class MapRun:
    """Neighbouring cells of one line of the byte map: place, number, outcome, and the first damaged byte."""

    x: int
    y: int
    cells: int
    outcome: str
    offset_bytes: int


def _show(visit: Visit) -> Answer:
    path = visit.location.path
    check = check_of(path)
    size_bytes = check.size_bytes
    check.ask(_WAIT_S, begin=size_bytes <= _SMALL_BYTES or bool(visit.query.text("check")))
    parts = () if check.result is None else check.result.parts
    bad = [part for part in parts if part.outcome != "kept"]
    paging = visit.query.paging(_ROWS, len(bad))
    return Page(
        "damage.html",
        {
            "size_bytes": size_bytes,
            "check": check,
            "percent": min(99, 100 * check.done_bytes // max(size_bytes, 1)),
            "totals": {name: sum(one.items for one in parts if one.outcome == name) for name in _WORSE},
            "lost_bytes": sum(one.bytes or 0 for one in parts if one.outcome == "lost"),
            "bad": bad[paging.here],
            "words": _WORDS,
            "map": byte_map(parts, size_bytes) if parts and parts[0].offset_bytes is not None else [],
            "map_size": (_COLUMNS, _LINES),
            "repair": repair_command(visit.location.command_path),
            "paging": paging,
            "hex": _hex(visit, size_bytes) if visit.query.text("at") else None,
            "at": visit.query.text("at"),
        },
    )


def _hex(visit: Visit, size_bytes: int) -> dict[str, object]:
    """Return the bytes around a place, with the fields of the frames there."""
    asked = visit.query.integer("at", 0, 0, max(0, size_bytes - 1))
    at = asked // LINE_BYTES * LINE_BYTES
    with open(visit.location.path, "rb", buffering=0) as raw:
        data = os.pread(raw.fileno(), _VIEW_BYTES, at)
    file = open_records(visit.location.path)
    fields = marks_of(file, asked, at + len(data)) if file.compression is None else (lambda _: "")
    lines = hex_lines(data, at, fields)
    before = None if at == 0 else max(0, at - _VIEW_BYTES)
    after = at + _VIEW_BYTES if at + _VIEW_BYTES < size_bytes else None
    return {"lines": lines, "at": asked, "before": before, "after": after}


def byte_map(parts: Sequence[RepairedPart], size_bytes: int) -> list[MapRun]:
    """Return the damaged cells of a map of 64 x 16 cells; a cell has the worst outcome of its bytes."""
    cells = min(_COLUMNS * _LINES, max(size_bytes, 1))
    outcomes, places = [0] * cells, [0] * cells
    for part in parts:
        rank = _WORSE.index(part.outcome)
        if not rank or part.offset_bytes is None or not part.bytes:
            continue
        low, high = part.offset_bytes, min(part.offset_bytes + part.bytes, size_bytes)
        first, last = low * cells // size_bytes, -(-high * cells // size_bytes)
        for cell in range(first, last):
            if rank > outcomes[cell]:
                outcomes[cell] = rank
                places[cell] = max(low, cell * size_bytes // cells)
    runs: list[MapRun] = []
    width = -(-cells // _LINES)
    for (y, rank), group in itertools.groupby(range(cells), lambda cell: (cell // width, outcomes[cell])):
        if rank:
            first, *others = group
            runs.append(MapRun(first % width, y, 1 + len(others), _WORSE[rank], places[first]))
    return runs


DAMAGE = View("damage", "Damage", has_records, _show)
