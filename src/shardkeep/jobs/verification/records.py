"""Check of the records of one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from shardkeep.errors import CorruptDataError, ShardkeepError
from shardkeep.files.kinds.kind import FileKind
from shardkeep.jobs.verification.finding import Finding, as_argument, finding_of
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.tfrecord import Reader
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
    is_compressed = kind.compression is not None or kind.described.startswith("zstd")
    try:
        if is_compressed:
            for _ in Reader(path):
                records += 1
            tick(size_bytes)
        else:
            records, findings = _with_damage(path, tick)
    except (ShardkeepError, OSError) as error:
        finding = finding_of(error, path)
        if isinstance(error, CorruptDataError):
            rest = "; the records after it were not checked" if is_compressed else ""

            finding = replace(finding, message=f"{finding.message}{rest}", next=_without_damage(path))
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
            finding = finding_of(one.error, path)
            findings.append(replace(finding, bytes=size_bytes, next=_without_damage(path)))
    if damaged > _MOST_FINDINGS:
        message = f"{path}: {damaged - _MOST_FINDINGS:,} more damaged records"
        findings.append(Finding("damage", message, path, next=_without_damage(path)))
    return records, findings


def _without_damage(path: str) -> str:
    """Return the command that copies the undamaged records."""
    stem, extension = os.path.splitext(path)
    output = as_argument(f"{stem}.undamaged{extension}")
    return f"shardkeep concat --on-corrupt skip {as_argument(path)} {output}"
