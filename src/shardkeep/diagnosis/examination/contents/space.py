"""Check the free space and inodes of each file system against what a run writes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents
from shardkeep.diagnosis.examination.contents.listing import Entry
from shardkeep.diagnosis.examination.contents.wording import merged_name
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.files.locks.mounts import mount_of
from shardkeep.quantities import counted, human_bytes

__all__ = ["check_space"]

_FULL_BYTES = 64 << 20
_NEARLY_FULL_BYTES = 10 << 30
_FULL_INODES = 100
_NEARLY_FULL_INODES = 10_000
_NEARLY_FULL_SHARE = 0.05
_HOUR_S = 3600.0
_ENOUGH_H = 24.0
# Of a run that ended longer ago, or has run for less, no rate is continued.
_LEAST_H = 1 / 6
# Fewer commits show no rate.
_FEWEST_COMMITS = 3


@dataclass(frozen=True)
class _Space:
    """Free and total space of the file system of a folder, for this user; None inodes are not limited."""

    folder: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    total_inodes: int

    @classmethod
    def of(cls, folder: str) -> _Space:
        status = os.statvfs(folder)
        # Btrfs and some network file systems have no fixed number of inodes.
        return cls(
            folder,
            status.f_bavail * status.f_frsize,
            status.f_blocks * status.f_frsize,
            status.f_favail if status.f_files else None,
            status.f_files,
        )


def check_space(contents: Contents) -> Iterator[Problem | Fact]:
    """Find file systems that are full or nearly so, or too small for the rest of a run and for its merge."""
    spaces: dict[int, _Space] = {}
    for folder in (*contents.subject.folders, *contents.listing.runs):
        try:
            spaces.setdefault(os.stat(folder).st_dev, _Space.of(folder))
        except OSError:
            continue  # the check of access reports it
    for space in spaces.values():
        yield Fact("space", f"free at {space.folder}", _described(space))
        yield from _nearly_full(space)
    for run in contents.listing.runs:
        inside = [one for one in contents.listing.files if _is_segment_of(one, run)]
        if inside:
            yield from _check_run(run, inside, _Space.of(run))


def _described(space: _Space) -> str:
    mount = mount_of(space.folder)
    text = f"{human_bytes(space.free_bytes)} of {human_bytes(space.total_bytes)}"
    if space.free_inodes is not None:
        text += f", {space.free_inodes:,} of {space.total_inodes:,} inodes"
    return text if mount is None else f"{text} ({mount.kind} at {mount.point})"


def _nearly_full(space: _Space) -> Iterator[Problem]:
    share = space.free_bytes / max(space.total_bytes, 1)
    command = f"df -h {as_argument(space.folder)}"
    text = f"{human_bytes(space.free_bytes)} free of {human_bytes(space.total_bytes)} ({share:.1%})"
    if space.free_bytes < _FULL_BYTES and share < _NEARLY_FULL_SHARE:
        fix = "remove files, or let the job write elsewhere"
        yield Problem("error", "space", f"the file system is full: {text}", fix, command, space.folder)
    elif share < _NEARLY_FULL_SHARE and space.free_bytes < _NEARLY_FULL_BYTES:
        fix = "remove files before the job starts, or let it write elsewhere"
        yield Problem(
            "warning", "space", f"the file system is nearly full: {text}", fix, command, space.folder
        )
    if space.free_inodes is None or space.free_inodes >= _NEARLY_FULL_SHARE * space.total_inodes:
        return
    if space.free_inodes < _NEARLY_FULL_INODES:
        full = space.free_inodes < _FULL_INODES
        text = f"{space.free_inodes:,} inodes are free of {space.total_inodes:,}: each file needs one"
        fix = "remove small files, or combine them"
        command = f"df -i {as_argument(space.folder)}"
        yield Problem("error" if full else "warning", "space", text, fix, command, space.folder)


def _is_segment_of(entry: Entry, run: str) -> bool:
    return (os.path.dirname(entry.folder) or os.curdir) == run and entry.name.endswith(".h5")


def _check_run(run: str, segments: list[Entry], space: _Space) -> Iterator[Problem | Fact]:
    """Compare the space for a merge, and for the commits of a day, with the free space."""
    segments.sort(key=lambda entry: entry.status.st_mtime)
    total = sum(entry.size_bytes for entry in segments)
    hours = (segments[-1].status.st_mtime - segments[0].status.st_mtime) / _HOUR_S
    yield Fact(
        "space", f"run {run}", f"{counted(len(segments), 'commit')}, {human_bytes(total)}, in {hours:.1f} h"
    )
    free = human_bytes(space.free_bytes)
    if space.free_bytes < total:
        evidence = f"a merge of this run writes about {human_bytes(total)}, and {free} are free"
        fix = "write the merged file to another file system, or let it refer to the segments"
        command = f"shardkeep merge --mode virtual {as_argument(run)} {merged_name(run)}"
        yield Problem("warning", "space", evidence, fix, command, run)
    idle_h = (time.time() - segments[-1].status.st_mtime) / _HOUR_S
    if len(segments) < _FEWEST_COMMITS or hours < _LEAST_H or idle_h > _ENOUGH_H:
        return
    # The first commit is before the measured time.
    bytes_per_hour = max(total - segments[0].size_bytes, 1) / hours
    files_per_hour = (len(segments) - 1) / hours
    left = [
        (
            space.free_bytes / bytes_per_hour,
            f"{human_bytes(int(bytes_per_hour))} an hour, and {free} are free",
        )
    ]
    if space.free_inodes is not None:
        text = f"{files_per_hour:,.0f} files an hour, and {space.free_inodes:,} inodes are free"
        left.append((space.free_inodes / files_per_hour, text))
    hours_left, text = min(left)
    if hours_left < _ENOUGH_H:
        evidence = f"the commits of this run write {text}: enough for {hours_left:.1f} hours"
        fix = "free space before then, commit less often, or let the run continue elsewhere"
        yield Problem("warning", "space", evidence, fix, f"df -h {as_argument(run)}", run)
