"""Check that segments are complete runs: rows without a gap, every rank, the same newest step."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.segments.series_end import is_ended
from shardkeep.quantities import counted

__all__ = ["RunCheck", "check_follows"]

_NAMED = 5


@dataclass
class _Rank:
    """State of the check for one rank of one run."""

    newest: CommitRecord
    newest_path: str
    # First step of the last commits that were made in one world size, and the step before those.
    world_step: int
    earlier_step: int | None = None
    next_rows: dict[str, int] = field(default_factory=dict)
    # The openings of the rank so far, each of which ended when the next one began.
    incarnations: set[str] = field(default_factory=set)

    @property
    def is_ended(self) -> bool:
        return is_ended(os.path.dirname(self.newest_path), self.newest.crc32c)


class RunCheck:
    """Check of the records of segments, added in the order in which they are merged.

    Segments belong to one run if their rank folders are in one folder, so a list may name segments of
    several runs.
    """

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, _Rank]] = {}
        self._run_of: dict[str, str] = {}
        self._findings: list[str] = []

    def add(self, path: str, record: CommitRecord, *, listed: bool) -> None:
        """Add one segment.

        Raises
        ------
        CorruptDataError
            Its rows do not continue those of the segment before of its rank, or it is of another run.
        """
        folder = os.path.dirname(path)
        run = self._run_of.get(folder)
        if run is None:
            run = self._run_of[folder] = os.path.dirname(os.path.realpath(folder))
        ranks = self._runs.setdefault(run, {})
        rank = ranks.get(record.rank)
        # A list of segments may begin in the middle, and a run may lack segments; both are findings.
        is_new = rank is None
        begins_late = is_new and record.sequence > 0
        if rank is None:
            rank = ranks[record.rank] = _Rank(record, path, record.step)
        elif record.world_size != rank.newest.world_size:
            rank.world_step, rank.earlier_step = record.step, rank.newest.step
        before, path_before = rank.newest, rank.newest_path
        rank.newest, rank.newest_path = record, path
        expected = 0 if is_new else before.sequence + 1
        missing: dict[str, int] = {}
        for name, one in record.datasets.items():
            rows = one.first_row - rank.next_rows.get(name, 0)
            if record.sequence > expected and rows >= 0 and (begins_late or not listed):
                missing.update({name: rows} if rows else {})
            elif rows:
                message = (
                    f"{path!r} starts at row {one.first_row} of {name!r}, not where the one before ended"
                )
                advice = "list every segment, in order" if listed else "restore both from a copy"
                raise CorruptDataError(f"{message}: {advice}", path=path)
            rank.next_rows[name] = one.first_row + one.rows
        if begins_late and listed:
            where = f"commit {record.sequence} (step {record.step})"
            self._findings.append(f"the list begins with {where} of rank {record.rank}, not with commit 0")
        elif record.sequence > expected:
            values = [name for name, put in record.puts.items() if expected <= put.sequence < record.sequence]
            gap = describe_gap(record.rank, expected, record.sequence, missing, values)
            self._findings.append(f"{gap} in {run!r}")
        check_follows(record, path, before, path_before)
        # Also for records without a checksum: an opening does not continue after a later one has begun.
        if record.incarnation != before.incarnation and record.incarnation in rank.incarnations:
            raise _of_two_runs(path, path_before)
        rank.incarnations.add(record.incarnation)

    def findings(self) -> tuple[str, ...]:
        """Return one sentence for each commit that is missing or occurs twice, with ranks and steps."""
        result = list(self._findings)
        for run, ranks in self._runs.items():
            result += [f"{text} in {run!r}" for text in _findings_of(ranks)]
        return tuple(result)


def check_follows(record: CommitRecord, path: str, before: CommitRecord, path_before: str) -> None:
    """Raise a `CorruptDataError` if a segment was not written after another one, the next in its series."""
    if record.sequence != before.sequence + 1 or None in (record.previous, before.crc32c):
        return
    if record.previous != before.crc32c:
        raise _of_two_runs(path, path_before)


def describe_gap(rank: int, start: int, stop: int, rows: dict[str, int], values: list[str]) -> str:
    """Describe the commits ``[start, stop)`` of a rank, which are missing, and their contents."""
    one = stop == start + 1
    commits = (
        f"commit {start} of rank {rank} is" if one else f"commits {start} to {stop - 1} of rank {rank} are"
    )
    contents = [f"{counted(count, 'row')} of {name!r}" for name, count in rows.items()]
    contents += [f"the value {name!r}" for name in values]
    return f"{commits} missing{f' ({_shortened(contents)})' if contents else ''}"


def _shortened(texts: list[str]) -> str:
    more = [f"{len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    return ", ".join([*texts[:_NAMED], *more])


def _of_two_runs(path: str, path_before: str) -> CorruptDataError:
    message = f"{path!r} and {path_before!r}, the segment before it, are of different runs"
    return CorruptDataError(f"{message}: one of them was copied there; restore it from a copy", path=path)


def _findings_of(ranks: dict[int, _Rank]) -> list[str]:
    newest = max((rank.newest for rank in ranks.values()), key=lambda one: (one.created, one.step))
    size = newest.world_size
    current = {number: one for number, one in ranks.items() if one.newest.world_size == size}
    step = max(one.newest.step for one in current.values())
    result = []
    missing = [number for number in range(size) if number not in ranks]
    if missing:
        result.append(f"{_numbers(missing)} of {size} {_have(missing)} no commit (the newest is step {step})")
    present = [number for number in range(size) if number in ranks]
    ended = [number for number in present if ranks[number].is_ended]
    behind = [number for number in present if number not in ended and ranks[number].newest.step < step]
    if ended and len(ended) < len(present):
        # Ranks that end by themselves are not in step, so the newest step proves nothing about the others.
        others = [number for number in present if number not in ended]
        result.append(
            f"{_numbers(others)} of {size} {_have(others)} not ended, as {_numbers(ended)} {_have(ended)}"
        )
    elif behind:
        steps = sorted({ranks[number].newest.step for number in behind})
        at = f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"
        result.append(f"{_numbers(behind)} of {size} ended at {at}, the newest commit is step {step}")
    # The newest world starts after this step: its ranks rolled back later commits.
    before = [one.earlier_step for one in current.values() if one.earlier_step is not None]
    taken_over = max(before) if before else min(one.world_step for one in current.values()) - 1
    twice = [n for n, one in ranks.items() if n not in current and one.newest.step > taken_over]
    if twice:
        late = max(ranks[number].newest.step for number in twice)
        result.append(
            f"{_numbers(twice)} of an earlier world {_have(twice)} commits up to step {late}, although a "
            f"world of {size} started from step {taken_over} (call hdf5.rollback(run_dir, step=…) before it)"
        )
    return result


def _numbers(ranks: list[int]) -> str:
    some = ", ".join(map(str, ranks[:_NAMED]))
    if len(ranks) > _NAMED:
        some = f"{some} and {len(ranks) - _NAMED} more"
    return f"rank {some}" if len(ranks) == 1 else f"ranks {some}"


def _have(ranks: list[int]) -> str:
    return "has" if len(ranks) == 1 else "have"
