"""Output of ``shardkeep repair``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from shardkeep._paths_in_messages import as_argument, repair_command
from shardkeep.cli.output.console import facts, listing, one_line_text, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted, human_bytes, listed
from shardkeep.tfrecord.shard_names import shard_pattern

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.jobs.salvage.report import Outcome, RepairedFile, RepairedPart, RepairReport

__all__ = ["OUTCOMES", "damage_rows", "lost_text", "part_place", "parts_with", "print_repair", "verdict"]

OUTCOMES: tuple[Outcome, ...] = ("kept", "repaired", "unchecked", "lost")
_COLOURS: dict[str, str] = {"kept": "", "repaired": "green", "unchecked": "yellow", "lost": "bold red"}
_WORST: tuple[Outcome, ...] = ("lost", "repaired", "unchecked")
_SHOWN_FILES = 40
_SHOWN_PARTS = 10
_SHOWN_PLACES = 6


def print_repair(report: RepairReport, html: str | None = None) -> None:
    """Print the report of `repair`: its damaged files, the first damaged parts of each, the next command."""
    parts: list[RenderableType] = []
    if report.files:
        parts.append(_files(report))
        shown = report.files[:_SHOWN_FILES]
        parts += [_damage(one, report) for one in shown]
    rows = {"written": _written(report), "intact": _intact(report), "verdict": verdict(report)}
    if html is not None:
        rows["page"] = one_line(html)
    rows["next"] = _next(report)
    print_parts(*parts, facts({name: text for name, text in rows.items() if text}))


def verdict(report: RepairReport) -> str:
    """Return in one line what is lost."""
    if report.ok:
        unchecked = parts_with(report.files, "unchecked")
        return "nothing is lost" + ("; some parts have no checksum" if unchecked else "")
    return f"lost: {lost_text(report.files)}"


def parts_with(files: Sequence[RepairedFile], outcome: Outcome) -> list[RepairedPart]:
    """Return the parts of some files with one outcome."""
    return [part for one in files for part in one.parts if part.outcome == outcome]


def lost_text(files: Sequence[RepairedFile]) -> str:
    """Return how much of some files is lost: records or rows, and bytes that may have held more of them."""
    lost = parts_with(files, "lost")
    items = sum(part.items for part in lost)
    size_bytes = sum(part.bytes or 0 for part in lost if not part.items)
    kinds = {one.kind == "tfrecord" for one in files}
    noun = "record" if kinds == {True} else "row" if kinds == {False} else "item"
    texts = [counted(items, noun)] if items else []
    if size_bytes:
        texts.append(human_bytes(size_bytes) + (f" in which no {noun} is recognisable" if items else ""))
    return ", and ".join(texts) or counted(len(lost), "part")


def damage_rows(one: RepairedFile) -> Iterator[tuple[str, str, str]]:
    """Yield outcome, place and reason of the parts that are not kept, the worst outcomes first.

    Datasets with one outcome and reason are one row.
    """
    damaged = [part for part in one.parts if part.outcome != "kept"]
    damaged.sort(key=lambda part: _WORST.index(part.outcome))
    groups: dict[object, list[RepairedPart]] = {}
    for part in damaged:
        is_alone = part.dataset is None or part.offset_bytes is not None or part.chunk is not None
        groups.setdefault(id(part) if is_alone else (part.outcome, part.reason), []).append(part)
    for parts in groups.values():
        place = listed(map(part_place, parts[:_SHOWN_PLACES]), len(parts))
        yield parts[0].outcome, place, parts[0].reason


def part_place(part: RepairedPart) -> str:
    """Return where a part is: dataset and chunk, or record, and its bytes."""
    texts = []
    if part.dataset is not None:
        chunk = "" if part.chunk is None else f" chunk {', '.join(map(str, part.chunk))}"
        texts.append(f"{part.dataset}{chunk}")
    if part.record is not None:
        last = part.record + part.items - 1
        texts.append(f"record {part.record:,}" if part.items <= 1 else f"records {part.record:,} to {last:,}")
    if part.offset_bytes is not None and part.bytes is not None:
        texts.append(f"{counted(part.bytes, 'byte')} at {part.offset_bytes:,}")
    return ", ".join(texts)


def _files(report: RepairReport) -> Table:
    shown = [name for name in OUTCOMES if name != "unchecked" or parts_with(report.files, name)]
    table = listing("file", "kind", *shown, "bytes lost", right=[*shown, "bytes lost"])
    for one in report.files[:_SHOWN_FILES]:
        lost_bytes = sum(part.bytes or 0 for part in parts_with([one], "lost"))
        unknown = "" if one.ok else "not known"
        # Damaged bytes may have held any number of records.
        counts = [f"{one.items(name):,}" if one.items(name) or name != "lost" else "" for name in shown]
        size = human_bytes(lost_bytes) if lost_bytes else unknown
        table.add_row(_name(one.path, report.path), one.kind, *counts, size)
    if len(report.files) > _SHOWN_FILES:
        table.add_row(f"… and {len(report.files) - _SHOWN_FILES:,} more: --json has all")
    return table


def _name(path: str, folder: str) -> str:
    return one_line(path if path == folder else os.path.relpath(path, folder))


def _damage(one: RepairedFile, report: RepairReport) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    rows = list(damage_rows(one))
    for outcome, place, reason in rows[:_SHOWN_PARTS]:
        text = one_line(f"{place}: {reason}" if place else reason)
        table.add_row(Text(outcome, style=_COLOURS[outcome]), text)
    lines: list[RenderableType] = [Text(_name(one.path, report.path), style="bold"), table]
    if len(rows) > _SHOWN_PARTS:
        lines.append(f"… and {len(rows) - _SHOWN_PARTS:,} more: --json has all")
    lines += [_note(one_line(f"note: {text}")) for text in one.notes[:_SHOWN_PARTS]]
    return Group(*lines)


def _note(text: str) -> RenderableType:
    return one_line_text(text) if ": shardkeep " in text else text


def _written(report: RepairReport) -> str:
    if report.dry_run:
        return "nothing, since this is a dry run"
    if report.output is None:
        return "nothing, since nothing can be kept" if report.files else "nothing, since nothing is damaged"
    count = sum(one.output is not None for one in report.files)
    is_whole = not os.path.isdir(report.path) or any(one.path == report.path for one in report.files)
    return one_line(report.output) if is_whole else f"{counted(count, 'file')} in {one_line(report.output)}"


def _intact(report: RepairReport) -> str:
    if not report.intact:
        return ""
    if os.path.isdir(report.path):
        return f"{counted(report.intact, 'file')} without damage, not copied"
    return "the file has no damage" + ("" if report.output is None else ", and is copied unchanged")


def _next(report: RepairReport) -> str:
    if report.output is not None:
        command = f"shardkeep verify {one_line(as_argument(report.output))}"
        shards = any(one.output is not None and shard_pattern(one.path) for one in report.files)
        if not (shards and os.path.isdir(report.path)):
            return command
        return f"{command}\n(it names the undamaged shards, which are not there, as missing)"
    worth = any(part.outcome != "lost" for one in report.files for part in one.parts)
    if not (report.dry_run and worth):
        return ""
    path = report.path.rstrip("/")
    has_name = os.path.basename(path) not in ("", ".", "..")
    return repair_command(path) if has_name else f"shardkeep repair {as_argument(report.path)} OUT"
