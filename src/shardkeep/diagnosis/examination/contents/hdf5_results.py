"""Check that HDF5 files are not marked as open for writing by a process that ended."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shardkeep._paths_in_messages import repair_command
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile, Reads
from shardkeep.diagnosis.examination.report import Problem, Severity
from shardkeep.files.locks.probe import is_of_one_kernel
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES, refused_flags

__all__ = ["check_flags"]

_MOST_READ = 4096


def check_flags(contents: Contents) -> Iterator[Problem]:
    """Find HDF5 files that HDF5 refuses to open, since their last writer did not close them."""
    reads = Reads(_MOST_READ, contents.subject)
    for one in contents.data:
        if one.kind is None or one.kind.name != "hdf5":
            continue
        if any(holder.writes for holder in contents.open_files.holders.get(one.entry.identity, ())):
            continue
        # With a redo log it is the file of a killed collector, which is restored before it is opened.
        if not os.path.lexists(log_path(one.path)) and reads.take() and _flags(one):
            yield _problem(one)


def _flags(one: DataFile) -> int:
    assert one.kind is not None
    try:
        with open(one.path, "rb", buffering=0) as file:
            file.seek(one.kind.offset_bytes)
            return refused_flags(file.read(SUPERBLOCK_BYTES))
    except OSError:
        return 0


def _problem(one: DataFile) -> Problem:
    mine = os.geteuid() in (0, one.entry.status.st_uid)
    is_certain = mine and is_of_one_kernel(one.entry.folder)
    where = "no process has it open" if is_certain else "no process that can be seen from here has it open"
    evidence = (
        f"it is marked as open for writing, and {where}: its writer was killed, and HDF5 refuses to open it"
    )
    fix = (
        "write a repaired copy"
        if is_certain
        else "if no process of another host or user writes it, repair it"
    )
    severity: Severity = "error" if is_certain else "warning"
    return Problem(severity, "hdf5", evidence, fix, repair_command(one.path), one.path)
