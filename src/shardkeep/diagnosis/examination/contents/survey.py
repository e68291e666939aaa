"""Checks of the files of a job, in the order of the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from shardkeep.diagnosis.examination.contents.access import check_access
from shardkeep.diagnosis.examination.contents.balance import check_balance
from shardkeep.diagnosis.examination.contents.data_files import Contents, Reads, check_kinds, find_data
from shardkeep.diagnosis.examination.contents.hdf5_results import check_flags
from shardkeep.diagnosis.examination.contents.holders import check_holders
from shardkeep.diagnosis.examination.contents.indexes import check_indexes
from shardkeep.diagnosis.examination.contents.leftovers import check_leftovers
from shardkeep.diagnosis.examination.contents.listing import list_files
from shardkeep.diagnosis.examination.contents.open_files import LockFiles, find_open_files
from shardkeep.diagnosis.examination.contents.runs import check_runs
from shardkeep.diagnosis.examination.contents.sets import check_shard_sets
from shardkeep.diagnosis.examination.contents.space import check_space
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.quantities import counted

__all__ = ["survey"]

_MOST_HEADS = 4096
_CHECKS: tuple[Callable[[Contents], Iterator[Problem | Fact]], ...] = (
    check_space,
    check_access,
    check_kinds,
    check_shard_sets,
    check_holders,
    check_flags,
    check_runs,
    check_leftovers,
    check_indexes,
    check_balance,
)


def survey(subject: Subject) -> Iterator[Problem | Fact]:
    """Examine the files of a job: names and status of all of them, the content of a limited number.

    The number of system calls is linear in the number of names. No file is read to its end, and nothing is
    written.
    """
    listing = list_files(subject.paths, until_s=time.monotonic() + subject.left_s / 2)
    if listing.folders:
        count = len(listing.files) + len(listing.companions)
        yield Fact("files", "names", f"{counted(count, 'file')} in {counted(len(listing.folders), 'folder')}")
    if not listing.is_complete:
        evidence = f"{len(listing.files):,} files were listed in {subject.left_s:.0f} s, and there are more"
        fix = "pass the folders of this job only, one at a time"
        yield Problem("note", "files", evidence, fix)
    data = find_data(listing, Reads(_MOST_HEADS, subject))
    open_files = find_open_files(listing, subject)
    contents = Contents(subject, listing, data, open_files, LockFiles.of(listing))
    for check in _CHECKS:
        if subject.stop.is_set():
            return
        yield from check(contents)
