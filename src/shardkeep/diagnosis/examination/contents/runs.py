"""Check the commits of run folders by the names of their segments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents
from shardkeep.diagnosis.examination.contents.open_files import LockFiles
from shardkeep.diagnosis.examination.contents.wording import merged_name
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.errors import CorruptDataError, ShardkeepError
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments, writer_path
from shardkeep.hdf5.segments.series_end import has_end
from shardkeep.quantities import counted, listed

__all__ = ["check_runs"]

_NAMED = 5


def check_runs(contents: Contents) -> Iterator[Problem | Fact]:
    """Find ranks without commits, or with fewer steps than others, and segments that are missing.

    No segment is opened, so a run that was resumed with fewer ranks looks like one whose last ranks were
    killed: a note. `shardkeep verify` checks the content.
    """
    for run in contents.listing.runs:
        try:
            yield from _check_run(run, contents.lock_files)
        except CorruptDataError as error:
            command = f"shardkeep verify {as_argument(run)}"
            yield Problem(
                "error", "run", str(error), "restore what is missing; a merge refuses", command, run
            )
        except (ShardkeepError, OSError):
            continue  # removed in the meantime, or not readable, which the check of access reports


def _check_run(run: str, lock_files: LockFiles) -> Iterator[Problem | Fact]:
    ranks = list_ranks(run)
    series = {rank: list_segments(folder) for rank, folder in ranks.items()}
    alive = {rank for rank, folder in ranks.items() if lock_files.is_held(writer_path(folder))}
    steps = {rank: segments[-1].step if segments else -1 for rank, segments in series.items()}
    newest = max(steps.values(), default=-1)
    text = f"{counted(len(ranks), 'rank')}, {counted(sum(map(len, series.values())), 'commit')}"
    text += f", newest step {newest:,}" if newest >= 0 else ""
    yield Fact("run", run, f"{text}; {counted(len(alive), 'rank')} being written" if alive else text)
    if newest < 0:
        return
    absent = _gaps(sorted(ranks))
    # A live run is not complete, and its ranks do not commit at one instant.
    behind = [rank for rank, step in steps.items() if step < newest and not has_end(ranks[rank])]
    behind = behind if not alive else []
    merge = f"shardkeep merge --incomplete warn {as_argument(run)} {merged_name(run)}"
    if absent:
        count = sum(last - first + 1 for first, last in absent)
        shown = ", ".join(
            f"{first}" if first == last else f"{first} to {last}" for first, last in absent[:_NAMED]
        )
        more = " and others" if len(absent) > _NAMED else ""
        evidence = (
            f"there is no folder of {'rank' if count == 1 else 'ranks'} {shown}{more}, although there is"
        )
        evidence += f" one of rank {max(ranks)}"
        fix = "fetch it from its machine; a merge without it must be allowed"
        yield Problem("warning", "run", evidence, fix, merge, run)
    if behind:
        least = min(steps[rank] for rank in behind)
        end = f"the first of them with step {least:,}" if least >= 0 else "without a commit"
        evidence = f"{_ranks(behind)} ended before step {newest:,}, {end}"
        if least >= 0 and 0 < behind[0] == len(ranks) - len(behind):
            evidence += f": the run was resumed with {counted(behind[0], 'rank')}, or a merge refuses it"
            command = f"shardkeep merge --dry-run {as_argument(run)} {merged_name(run)}"
            yield Problem("note", "run", evidence, "see which of the two a merge reports", command, run)
            return
        evidence += ": a merge refuses the run"
        fix = "resume the run, remove the commits after the last step of all ranks, or merge what is there"
        command = f"shardkeep rollback {as_argument(run)} --step {least} --dry-run" if least >= 0 else merge
        yield Problem("warning", "run", evidence, fix, command, run)


def _gaps(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the ranges of numbers from 0 that are missing; a name may have any number."""
    pairs = itertools.pairwise([-1, *numbers])
    return [(low + 1, high - 1) for low, high in pairs if high - low > 1]


def _ranks(numbers: list[int]) -> str:
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {listed(numbers[:_NAMED], len(numbers))}"
