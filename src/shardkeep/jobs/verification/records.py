"""Check of the records of one file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from shardkeep.errors import CorruptDataError, ShardkeepError
from shardkeep.files.kinds.kind import FileKind
from shardkeep.jobs.verification.finding import Finding, as_argument, finding_of
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.progress import ticking
from shardkeep.tfrecord import Reader
from shardkeep.tfrecord.damage import is_repairable
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
            for _ in ticking(Reader(path), len, size_bytes, tick):
                records += 1
        else:
            records, findings = _with_damage(path, tick)
    except (ShardkeepError, OSError) as error:
        finding = finding_of(error, path)
        if is_compressed and isinstance(error, CorruptDataError):
            text = f"{finding.message}; the records after it were not checked"
            # The offset of the error is one of the decompressed stream.
            finding = replace(finding, message=text, record=records, offset_bytes=None)
        findings.append(finding)
    # A repair fails at damage that cannot be corrected, so it is advised only without such damage.
    if findings and not is_compressed and all(map(_is_repairable, findings)):
        findings = [_with_copy(finding, "repair") for finding in findings]
    elif records:
        findings = [_with_copy(finding, "skip") for finding in findings]
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
        findings.append(Finding("damage", message, path))
    return records, findings


def _is_repairable(finding: Finding) -> bool:
    return finding.offset_bytes is not None and is_repairable(finding.path, finding.offset_bytes)


def _with_copy(finding: Finding, on_corrupt: Literal["skip", "repair"]) -> Finding:
    """Return a finding about damage with the command that copies what can be had."""
    if finding.kind not in ("damage", "truncated"):
        return finding
    stem, extension = os.path.splitext(finding.path)
    output = as_argument(f"{stem}.{'repaired' if on_corrupt == 'repair' else 'undamaged'}{extension}")
    command = f"shardkeep concat --on-corrupt {on_corrupt} {as_argument(finding.path)} {output}"
    return replace(finding, next=command)
