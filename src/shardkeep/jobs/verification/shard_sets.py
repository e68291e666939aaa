"""Sets of shards ``-00003-of-00008`` among the files of a verification."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from shardkeep.jobs.verification.finding import Finding
from shardkeep.jobs.verification.inventory import Task
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.tfrecord.shard_names import find_set_faults, shard_pattern, shards_in_folder

__all__ = ["ADVICE", "check_sets", "with_empty_shards"]

ADVICE = {
    "incomplete-set": "fetch or write what is missing",
    "mixed-sets": "move all but one away, since their records may be the same",
}
"""What to do about each fault of a set."""


def check_sets(tasks: Iterable[Task], given: Container[str]) -> list[VerifiedFile]:
    """Return a finding for each set that is incomplete, or mixed with one of another size.

    A shard that was not passed is not missing if it exists, and one that was passed alone is not a set:
    `given` has the paths and patterns of the call.
    """
    paths: list[str] = []
    named: defaultdict[str, list[str]] = defaultdict(list)
    for task in tasks:
        pattern = shard_pattern(task.path)
        if not task.named:
            paths.append(task.path)
        elif pattern is not None:
            named[pattern].append(task.path)
    for pattern, members in named.items():
        if len(members) > 1 or members[0] not in given:
            paths += {*members, *shards_in_folder(pattern)}
    return [
        VerifiedFile(
            fault.pattern,
            "set",
            0,
            0,
            (Finding(fault.kind, f"{fault.pattern}: {fault.text}; {ADVICE[fault.kind]}", fault.pattern),),
        )
        for fault in find_set_faults(paths)
    ]


def with_empty_shards(files: Sequence[VerifiedFile]) -> list[VerifiedFile]:
    """Return results without findings about empty shards of sets with fewer records than shards."""
    sets: defaultdict[str | None, list[VerifiedFile]] = defaultdict(list)
    for one in files:
        sets[shard_pattern(one.path)].append(one)
    sets.pop(None, None)
    few = {
        pattern
        for pattern, members in sets.items()
        if 0 < sum(one.items for one in members) < len(members)
        and not find_set_faults(one.path for one in members)
        and all(finding.kind == "empty" for one in members for finding in one.findings)
    }
    return [
        replace(one, findings=()) if one.findings and shard_pattern(one.path) in few else one for one in files
    ]
