"""Output of ``shardkeep info``."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from shardkeep.cli.output.console import facts, listing, print_parts, size_text
from shardkeep.cli.output.items import short_text
from shardkeep.cli.output.shards import damage_lines
from shardkeep.errors import one_line
from shardkeep.files.leftovers import find_companion
from shardkeep.jobs import FileEntry, FolderInfo, HDF5Info, MergedInfo, TFRecordInfo
from shardkeep.quantities import counted, human_bytes, listed

__all__ = ["print_info"]

_SHOWN_FILES = 40
_SHOWN_SOURCES = 3
_EMPTY = "empty: a TFRecord file without records, or what a killed writer left"


def print_info(found: TFRecordInfo | HDF5Info | FolderInfo) -> None:
    """Print the contents that `shardkeep.jobs.info` returned."""
    if isinstance(found, TFRecordInfo):
        _print_tfrecord(found)
    elif isinstance(found, HDF5Info):
        _print_hdf5(found)
    else:
        _print_folder(found)


def _print_tfrecord(found: TFRecordInfo) -> None:
    compression = f", {found.compression}-compressed" if found.compression else ""
    checked = counted(len(found.damaged), "damaged record") if found.damaged else "every checksum holds"
    rows = {
        "file": one_line(found.path),
        "kind": f"TFRecord{compression}, {checked}" if found.file_bytes else _EMPTY,
        "size": size_text(found.file_bytes),
        "records": f"{found.records:,}",
    }
    if found.records:
        mean = found.payload_bytes / found.records
        rows["record size"] = f"{found.smallest_bytes:,} to {found.largest_bytes:,} bytes, mean {mean:,.0f}"
    if found.records and found.features is None:
        rows["first record"] = found.content or "not a tf.train.Example"
    parts: list[RenderableType] = [facts(rows)]
    if found.damaged:
        parts.append("\n".join(damage_lines(found.damaged)))
    if not found.features:
        print_parts(*parts)
        return
    table = listing("feature of the first record", "type", "values", "begins", right=["values"])
    for feature in found.features:
        table.add_row(one_line(feature.name), feature.type, f"{feature.values:,}", _begins(feature.sample))
    print_parts(*parts, table)


def _begins(sample: list[Any]) -> str:
    return " ".join(one_line(str(value)) for value in sample)


def _print_hdf5(found: HDF5Info) -> None:
    rows = {"file": one_line(found.path), "kind": _hdf5_kind(found), "size": size_text(found.file_bytes)}
    if found.worker is not None:
        rows["rank"] = f"{found.worker.rank} of {found.worker.world_size}"
        rows["committed step"] = f"{found.worker.committed_step:,}"
    if found.merged is not None:
        rows |= _origin(found.merged)
    table = listing("dataset", "shape", "type", "chunks", "filters", "stored", right=["stored"])
    for dataset in found.datasets:
        table.add_row(
            one_line(dataset.name),
            _shape(dataset.shape),
            one_line(dataset.dtype),
            "–" if dataset.chunks is None else _shape(dataset.chunks),
            "virtual" if dataset.virtual else (", ".join(map(one_line, dataset.filters)) or "–"),
            human_bytes(dataset.stored_bytes),
        )
    parts: list[RenderableType] = [facts(rows), table if found.datasets else "no datasets"]
    attributes = listing("attribute", "of", "value")
    for owner, named in [("the file", found.attributes)] + [(d.name, d.attributes) for d in found.datasets]:
        for name, value in named.items():
            attributes.add_row(one_line(name), one_line(owner), short_text(value))
    if attributes.row_count:
        parts.append(attributes)
    print_parts(*parts)


def _hdf5_kind(found: HDF5Info) -> str:
    if found.worker is not None:
        return "HDF5, one commit of a worker"
    if found.merged is not None:
        return "HDF5, merged" + (", points to its sources" if found.merged.mode == "virtual" else "")
    return "HDF5, written by a collector" if found.collected else "HDF5"


def _origin(merged: MergedInfo) -> dict[str, str]:
    rows = {}
    if merged.ranks:
        numbers = [one.rank for one in merged.ranks]
        rows["ranks"] = f"{len(numbers):,}, {_range(numbers[0], numbers[-1])}"
        last = [one.last_step for one in merged.ranks]
        rows["steps"] = _range(min(one.first_step for one in merged.ranks), max(last))
        if min(last) < max(last):
            rows["steps"] += f"; rank {merged.ranks[last.index(min(last))].rank} ends at {min(last):,}"
    rows["order"] = one_line(merged.order_by)
    shown = listed(map(one_line, merged.sources[:_SHOWN_SOURCES]), len(merged.sources))
    rows["sources"] = f"{counted(len(merged.sources), 'file')} in {one_line(merged.root)}: {shown}"
    rows["receipts"] = f"{merged.receipts:,}"
    if merged.findings:
        rows["incomplete"] = one_line("; ".join(merged.findings))
    return rows


def _range(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _print_folder(found: FolderInfo) -> None:
    rows = {"folder": one_line(found.path), "entries": f"{len(found.files):,}"}
    if any(one.records is not None for one in found.kinds):
        rows["records"] = f"{found.records:,}"
    parts: list[RenderableType] = [facts(rows)]
    # The files that accompany data are only counted.
    data = [entry for entry in found.files if find_companion(entry.name) is None]
    if found.files:
        parts.append(_kinds(found))
    if data:
        parts.append(_entries(data))
        if len(data) > _SHOWN_FILES:
            parts.append(f"and {len(data) - _SHOWN_FILES:,} more; --json has all")
    faults = [entry.fault for entry in found.files if entry.fault is not None]
    if faults or found.findings:
        parts.append("\n".join(map(one_line, [*found.findings, *faults])))
    if found.workers:
        workers = listing(
            "rank",
            "world size",
            "commits",
            "newest step",
            "rows",
            right=["rank", "world size", "commits", "newest step"],
        )
        for worker in found.workers:
            counts = (worker.rank, worker.world_size, worker.commits, worker.committed_step)
            committed = ", ".join(f"{one_line(name)} {count:,}" for name, count in worker.rows.items())
            workers.add_row(*(f"{count:,}" for count in counts), committed)
        parts.append(workers)
    print_parts(*parts)


def _kinds(found: FolderInfo) -> RenderableType:
    table = listing("kind", "files", "size", "records", right=["files", "size", "records"])
    for one in found.kinds:
        records = "" if one.records is None else f"{one.records:,}"
        size = "" if one.described == "a folder" else human_bytes(one.file_bytes)
        table.add_row(one_line(one.described), f"{one.files:,}", size, records)
    return table


def _entries(files: list[FileEntry]) -> RenderableType:
    table = listing("file", "size", "records", "kind", right=["size", "records"])
    for entry in sorted(files, key=lambda one: one.fault is None)[:_SHOWN_FILES]:
        size = "" if entry.described == "a folder" else human_bytes(entry.file_bytes)
        records = "" if entry.records is None else f"{entry.records:,}"
        table.add_row(one_line(entry.name), size, records, one_line(entry.described))
    return table


def _shape(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "empty"
    return " × ".join(f"{size:,}" for size in shape) if shape else "scalar"
