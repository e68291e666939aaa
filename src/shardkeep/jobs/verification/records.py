"""Check of the records of one file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardkeep.errors import CorruptDataError, ShardkeepError
from shardkeep.files.kinds.kind import FileKind
from shardkeep.jobs.verification.finding import Finding, finding_of, with_next
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.progress import ticking
from shardkeep.tfrecord import Reader
from shardkeep.tfrecord.format.file_kind import is_compressed
from shardkeep.tfrecord.index.damaged import DamagedRecord, find_damage

__all__ = ["check_records"]

_MOST_FINDINGS = 20


def check_records(path: str, kind: FileKind, size_bytes: int, tick: Callable[[int], None]) -> VerifiedFile:
    """Check every record of a file; after damage continue with the next record.

    Parameters
    ----------
    path : str
    kind : FileKind
        The kind of its content: a TFRecord file, or one with a damaged start.
    size_bytes : int
    tick : callable
        Called with the number of bytes of each part that was checked.
    """
    records = 0
    findings: list[Finding] = []
    try:
        if is_compressed(kind):
            for _ in ticking(Reader(path), len, size_bytes, tick):
                records += 1
        else:
            records, findings = _with_damage(path, tick)
    except (ShardkeepError, OSError) as error:
        finding = finding_of(error, path)
        if is_compressed(kind) and isinstance(error, CorruptDataError):
            text = f"{finding.message}; the records after it were not checked"
            # The offset of the error is one of the decompressed stream.
            finding = replace(finding, message=text, record=records, offset_bytes=None)
        findings.append(finding)
    return VerifiedFile(path, "tfrecord", size_bytes, records, tuple(findings))


def _with_damage(path: str, tick: Callable[[int], None]) -> tuple[int, list[Finding]]:
    """Return the number of undamaged records, and a finding for each of the first damaged ones."""
    findings: list[Finding] = []
    damaged, records = 0, 0
    for one in find_damage(path, tick=tick):
        if not isinstance(one, DamagedRecord):
            records = one - damaged
            continue
        damaged += 1
        if damaged <= _MOST_FINDINGS:
            size_bytes = one.stop_bytes - one.start_bytes
            findings.append(replace(finding_of(one.error, path), bytes=size_bytes))
    if damaged > _MOST_FINDINGS:
        message = f"{path}: {damaged - _MOST_FINDINGS:,} more damaged records"
        findings.append(with_next(Finding("damage", message, path)))
    return records, findings
