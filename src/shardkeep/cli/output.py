"""How results look: tables for people, JSON for programs.

Rich is imported here and this module only by commands that print, so ``--help`` stays quick.
Everything that comes from a file goes through `printable`: its bytes must not steer a terminal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from shardkeep.cli.text import counted, human_bytes, json_text, printable
from shardkeep.jobs.cat import RecordItem, RowItem, feature_type
from shardkeep.jobs.info import FolderInfo, HDF5Info, TFRecordInfo
from shardkeep.jobs.plain import plain

if TYPE_CHECKING:
    from shardkeep.hdf5 import MergeReport
    from shardkeep.plan import AuditReport

__all__ = [
    "console",
    "facts",
    "print_audit",
    "print_info",
    "print_item",
    "print_json",
    "print_json_line",
    "print_merge",
    "print_parts",
]

_WIDTH = 80
_SHOWN_VALUES = 8
_SHOWN_BYTES = 24


def console(*, stderr: bool = False) -> Console:
    """Return where tables go: colours only on a terminal and without NO_COLOR, 80 columns in a pipe."""
    out = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = _WIDTH
    return out


def print_json(value: Any) -> None:
    """Print one JSON document."""
    click.echo(json_text(value, indent=2))


def print_json_line(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(json_text(value))


def _size(count: int) -> str:
    return human_bytes(count) if count < 1024 else f"{human_bytes(count)} ({count:,} bytes)"


def facts(rows: Mapping[str, str]) -> Table:
    """Return a table of names and what there is to say about each."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _listing(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def print_parts(*parts: RenderableType) -> None:
    """Print one under the other, with an empty line between them and no blanks at the ends of lines."""
    out = console()
    with out.capture() as captured:
        for number, part in enumerate(parts):
            if number:
                out.print()
            out.print(part)
    # Rich fills every line up to the width of its table.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


# -- info ----------------------------------------------------------------------------------------


def print_info(found: TFRecordInfo | HDF5Info | FolderInfo) -> None:
    """Print what `shardkeep.jobs.info` found."""
    if isinstance(found, TFRecordInfo):
        _print_tfrecord(found)
    elif isinstance(found, HDF5Info):
        _print_hdf5(found)
    else:
        _print_folder(found)


def _print_tfrecord(found: TFRecordInfo) -> None:
    compression = f", {found.compression}-compressed" if found.compression else ""
    rows = {
        "file": printable(found.path),
        "kind": f"TFRecord{compression}, every checksum holds",
        "size": _size(found.file_bytes),
        "records": f"{found.records:,}",
    }
    if found.records:
        mean = found.payload_bytes / found.records
        rows["record size"] = f"{found.smallest_bytes:,} to {found.largest_bytes:,} bytes, mean {mean:,.0f}"
    if not found.records:
        print_parts(facts(rows))
        return
    if found.features is None:
        rows["first record"] = "not a tf.train.Example"
        print_parts(facts(rows))
        return
    table = _listing("feature of the first record", "type", "values", "begins", right=["values"])
    for feature in found.features:
        table.add_row(printable(feature.name), feature.type, f"{feature.values:,}", _begins(feature.sample))
    print_parts(facts(rows), table)


def _begins(sample: list[Any]) -> str:
    return " ".join(printable(str(value)) for value in sample)


def _print_hdf5(found: HDF5Info) -> None:
    kind = "HDF5, written by a collector" if found.collected else "HDF5"
    rows = {
        "file": printable(found.path),
        "kind": kind if found.worker is None else "HDF5, one commit of a worker",
        "size": _size(found.file_bytes),
    }
    if found.worker is not None:
        rows["rank"] = f"{found.worker.rank} of {found.worker.world_size}"
        rows["committed step"] = f"{found.worker.committed_step:,}"
    table = _listing("dataset", "shape", "type", "chunks", "filters", "stored", right=["stored"])
    for dataset in found.datasets:
        table.add_row(
            printable(dataset.name),
            _shape(dataset.shape),
            printable(dataset.dtype),
            "–" if dataset.chunks is None else _shape(dataset.chunks),
            "virtual" if dataset.virtual else (", ".join(map(printable, dataset.filters)) or "–"),
            human_bytes(dataset.stored_bytes),
        )
    parts: list[RenderableType] = [facts(rows), table if found.datasets else "no datasets"]
    attributes = _listing("attribute", "of", "value")
    for owner, named in [("the file", found.attributes)] + [(d.name, d.attributes) for d in found.datasets]:
        for name, value in named.items():
            attributes.add_row(printable(name), printable(owner), _short(value))
    if attributes.row_count:
        parts.append(attributes)
    print_parts(*parts)


def _print_folder(found: FolderInfo) -> None:
    files = _listing("file", "size", "kind", right=["size"])
    for entry in found.files:
        files.add_row(
            printable(entry.name),
            "" if entry.described == "a folder" else human_bytes(entry.file_bytes),
            printable(entry.described),
        )
    parts: list[RenderableType] = [
        facts({"folder": printable(found.path), "entries": f"{len(found.files):,}"})
    ]
    if found.files:
        parts.append(files)
    if found.workers:
        workers = _listing(
            "rank", "of", "commits", "up to step", "rows", right=["rank", "of", "commits", "up to step"]
        )
        for worker in found.workers:
            counts = (worker.rank, worker.world_size, worker.commits, worker.committed_step)
            rows = ", ".join(f"{printable(name)} {count:,}" for name, count in worker.rows.items())
            workers.add_row(*(f"{count:,}" for count in counts), rows)
        parts.append(workers)
    print_parts(*parts)


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "empty"
    return " × ".join(f"{size:,}" for size in shape) if shape else "scalar"


def _short(value: Any, limit: int = 200) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return printable(text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)")


# -- cat -----------------------------------------------------------------------------------------


def print_item(item: RecordItem | RowItem) -> None:
    """Print one record or one row."""
    if isinstance(item, RowItem):
        click.echo(f"{click.style(str(item.row), bold=True)}  {_row(item.value)}")
        return
    click.echo(f"{click.style(f'record {item.record}', bold=True)}  {len(item.data):,} bytes")
    if item.features is None:
        click.echo(f"  {_bytes(item.data)}")
        return
    named = [(printable(name), values) for name, values in sorted(item.features.items())]
    width = max((len(name) for name, _ in named), default=0)
    for name, values in named:
        click.echo(f"  {name:{width}}  {feature_type(values):7}  {_values(values)}")


def _values(values: Any) -> str:
    shown = [_row(value) for value in values[:_SHOWN_VALUES]]
    rest = len(values) - len(shown)
    return " ".join(shown) + (f" … ({rest:,} more)" if rest else "")


def _bytes(data: bytes) -> str:
    text = repr(data[:_SHOWN_BYTES])[1:]
    return text if len(data) <= _SHOWN_BYTES else f"{text}… ({len(data):,} bytes)"


def _row(value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, np.void) and value.dtype.names is not None:
        return "  ".join(f"{printable(name)}={_row(value[name])}" for name in value.dtype.names)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return printable(_values(value))
    return _short(plain(value))


# -- merge and audit -----------------------------------------------------------------------------


def print_merge(report: MergeReport) -> None:
    """Print what `shardkeep.hdf5.merge` did."""
    from shardkeep.hdf5.plan_text import left_out_lines

    files = counted(len(report.sources), "file")
    table = _listing("dataset", "rows", "how", right=["rows"])
    for name, rows in report.rows.items():
        table.add_row(printable(name), f"{rows:,}", printable(report.ways.get(name, "")))
    compared, rows = sum(report.compared.values()), sum(report.rows.values())
    parts: list[RenderableType] = [
        facts(
            {
                "merged": f"{files} into {printable(report.output)}",
                "size": _size(report.bytes),
                "compared": f"{compared:,} of {rows:,} rows, by value",
                "took": f"{report.seconds:.1f} s",
            }
        ),
        table,
    ]
    parts += map(printable, left_out_lines(report))
    print_parts(*parts)


def print_audit(report: AuditReport) -> None:
    """Print what `shardkeep.plan.audit` found."""
    counts = ["records", "delivered", "lost", "repeated", "dropped"]
    some_skipped = any(epoch.skipped for epoch in report.epochs)
    counts += ["skipped"] * some_skipped
    table = _listing("epoch", *counts, "verdict", right=["epoch", *counts])
    findings: list[str] = []
    for epoch in report.epochs:
        verdict = "exactly once" if epoch.ok else "not finished" if epoch.under_way else "FAILED"
        ranges = (epoch.lost.records, epoch.repeated.records, epoch.dropped.records)
        numbers = [epoch.epoch, epoch.records, epoch.delivered, *ranges]
        numbers += [len(epoch.skipped)] * some_skipped
        table.add_row(*(f"{number:,}" for number in numbers), verdict)
        for what, names, count in (
            ("lost", epoch.lost_names, epoch.lost.records),
            ("repeated", epoch.repeated_names, epoch.repeated.records),
        ):
            if names:
                more = f" and {count - len(names):,} more" if count > len(names) else ""
                findings.append(f"epoch {epoch.epoch} {what}: {', '.join(map(str, names))}{more}")
        for what, damaged in (("skipped as damaged", epoch.skipped), ("repaired", epoch.repaired)):
            if damaged:
                shown, count = damaged[:_SHOWN_VALUES], len(damaged)
                more = f" and {count - len(shown):,} more" if count > len(shown) else ""
                findings.append(f"epoch {epoch.epoch} {what}: {', '.join(map(str, shown))}{more}")
        findings += [f"epoch {epoch.epoch}: {problem}" for problem in epoch.problems]
    findings += report.problems
    verdict = "proved: every record was used exactly once" if report.ok else "NOT proved"
    parts: list[RenderableType] = [table] if report.epochs else []
    if findings:
        parts.append("\n".join(map(printable, findings)))
    print_parts(*parts, f"{verdict} ({counted(report.receipts, 'receipt')})")
