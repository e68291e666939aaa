"""Cut of a segment at a marked step: a new segment with the rows up to the mark takes its place.

1. The new segment is written, synced, and renamed to ``SEQUENCE-step-MARK-from-STEP.h5``. From this rename on
   `list_segments` no longer returns the segment of STEP.
2. The segment of STEP is removed.
3. The new one is renamed to ``SEQUENCE-step-MARK.h5``.

A crash before 1 leaves the segment as it was. After 1 the cut has happened; the next opening or rollback of
the rank completes 2 and 3 (`complete_cuts`).
"""

from __future__ import annotations

import os
from dataclasses import replace

from shardkeep.files.durable import durably, sync_folder
from shardkeep.hdf5.read_errors import reading
from shardkeep.hdf5.segments.commit_record import CommitRecord, MarkRecord
from shardkeep.hdf5.segments.run_folder import list_segments, segment_path
from shardkeep.hdf5.segments.segment import Segment
from shardkeep.hdf5.sources.source import Source, blocks, check_value, not_as_committed, open_source
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.worker.contents import Contents, Storage

__all__ = ["complete_cuts", "cut_segment"]


def cut_segment(path: str, mark: MarkRecord, *, durable: bool) -> None:
    """Replace a segment, or write the first commit of a file that has no name of a segment yet.

    The caller holds the lock of the rank, and there are no later segments.

    Raises
    ------
    CorruptDataError
        Rows or values of the segment are not those of its commit; nothing changed.
    DurabilityError
        The new segment could not be written; nothing changed.
    """
    folder = os.path.dirname(path)
    segment = Segment(folder, durable=durable)
    try:
        with open_source(path) as source:
            record = source.record
            assert record is not None
            is_sealed = path == segment_path(folder, record.sequence, record.step)
            contents, new = _up_to(source, record, mark)
            with segment.writing():
                for name, rows in mark.rows.items():
                    _copy_rows(source, name, rows, record.datasets[name].crc32c, contents, segment)
                contents.write(segment.group, new)
        cut_from = record.step if is_sealed else None
        segment.seal(segment_path(folder, record.sequence, mark.step, cut_from))
    except BaseException:
        segment.abort()
        raise
    if is_sealed:
        complete_cuts(folder, durable=durable)
    else:
        os.unlink(path)


def complete_cuts(folder: str, *, durable: bool) -> None:
    """Complete the cut that a crash interrupted; the caller holds the lock of the rank."""
    for one in list_segments(folder, gaps=True):
        if one.cut_from is not None:
            with durably("roll back", folder):
                whole = segment_path(folder, one.sequence, one.cut_from)
                if os.path.lexists(whole):
                    os.unlink(whole)
                    if durable:
                        sync_folder(folder)
                os.rename(one.path, segment_path(folder, one.sequence, one.step))
                if durable:
                    sync_folder(folder)


def _up_to(source: Source, record: CommitRecord, mark: MarkRecord) -> tuple[Contents, CommitRecord]:
    """Return contents without rows, with values and attributes, and the record without datasets."""
    contents = Contents(os.path.dirname(source.path), record.rank, Storage())
    contents.read(source, record)
    for name, one in record.datasets.items():
        contents.first_row[name] = one.first_row
        if name not in mark.rows:
            del contents.writers[name], contents.first_row[name]
            contents.attributes.pop(name, None)
    contents.puts = {name: put for name, put in record.puts.items() if put.sequence < record.sequence}
    for name in mark.puts:
        contents.values[name], attributes = contents.value_in(source, name)
        value = contents.values[name]
        check_value(source.path, name, (value, value.dtype), record.puts[name].crc32c)
        if attributes.values:
            contents.attributes[name] = attributes
    receipts = {key: number for key, number in record.receipts.items() if number < record.sequence}
    receipts = {**_receipts_before(contents.folder, record), **receipts}
    if mark.receipt is not None:
        receipts[str(mark.receipt.get("id", record.incarnation))] = record.sequence
    new = replace(
        record,
        step=mark.step,
        datasets={},
        puts={},
        receipt=mark.receipt,
        receipts=receipts,
        state=mark.state,
        marks=tuple(one for one in record.marks if one.step < mark.step),
        crc32c=None,
    )
    return contents, new


def _receipts_before(folder: str, record: CommitRecord) -> dict[str, int]:
    for one in list_segments(folder, gaps=True):
        if one.sequence == record.sequence - 1:
            with open_source(one.path) as source:
                return {} if source.record is None else dict(source.record.receipts)
    return {}


def _copy_rows(
    source: Source, name: str, rows: int, crc32c: str, contents: Contents, segment: Segment
) -> None:
    """Copy the first rows; read all of them, since only all have a hash."""
    dataset, writer = source.dataset(name), contents.writers[name]
    crc = start = 0
    with reading(source.path, name):
        for block in blocks(dataset, 0, dataset.shape[0]):
            crc = content_crc(block, crc)
            if start < rows:
                writer.add(block[: rows - start], segment.group)
            start += len(block)
    if f"{crc:08x}" != crc32c:
        raise not_as_committed(source.path, name)
