"""Output of ``shardkeep info``."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType

from shardkeep.cli.output.console import facts, listing, print_parts, size_text
from shardkeep.cli.output.items import short_text
from shardkeep.cli.output.text import human_bytes, printable
from shardkeep.jobs.info import FolderInfo, HDF5Info, TFRecordInfo

__all__ = ["print_info"]


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
    rows = {
        "file": printable(found.path),
        "kind": f"TFRecord{compression}, every checksum holds",
        "size": size_text(found.file_bytes),
        "records": f"{found.records:,}",
    }
    if found.records:
        mean = found.payload_bytes / found.records
        rows["record size"] = f"{found.smallest_bytes:,} to {found.largest_bytes:,} bytes, mean {mean:,.0f}"
    if not found.records:
        print_parts(facts(rows))
        return
    if found.features is None:
        rows["first record"] = found.content or "not a tf.train.Example"
        print_parts(facts(rows))
        return
    table = listing("feature of the first record", "type", "values", "begins", right=["values"])
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
        "size": size_text(found.file_bytes),
    }
    if found.worker is not None:
        rows["rank"] = f"{found.worker.rank} of {found.worker.world_size}"
        rows["committed step"] = f"{found.worker.committed_step:,}"
    table = listing("dataset", "shape", "type", "chunks", "filters", "stored", right=["stored"])
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
    attributes = listing("attribute", "of", "value")
    for owner, named in [("the file", found.attributes)] + [(d.name, d.attributes) for d in found.datasets]:
        for name, value in named.items():
            attributes.add_row(printable(name), printable(owner), short_text(value))
    if attributes.row_count:
        parts.append(attributes)
    print_parts(*parts)


def _print_folder(found: FolderInfo) -> None:
    files = listing("file", "size", "kind", right=["size"])
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
        workers = listing(
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
