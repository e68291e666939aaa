"""The outcome of a demo run, as numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Check", "Death", "DemoReport", "EpochUse", "plural"]


@dataclass(frozen=True)
class Death:
    """One kill and what became of it.

    Attributes
    ----------
    rank, pid, step, moment
        Who, at which step and when in it (see `Kill`).
    resumed_step : int
        Step of the checkpoint that the run went on from.
    workers_before, workers_after : int
    lost_steps, lost_rows : int
        Work that had been done after that checkpoint and was done again.
    away_s : float
        From the death to the first step of the new world, in seconds.
    """

    rank: int
    pid: int
    step: int
    moment: str
    resumed_step: int
    workers_before: int
    workers_after: int
    lost_steps: int
    lost_rows: int
    away_s: float = 0.0


@dataclass(frozen=True)
class Check:
    """One promise that was tested.

    Attributes
    ----------
    name : str
    ok : bool
    finding : str
        What was found, in one line.
    """

    name: str
    ok: bool
    finding: str


@dataclass(frozen=True)
class EpochUse:
    """How often the records of one epoch stand in the merged table of predictions.

    Attributes
    ----------
    epoch : int
        From 0.
    records : int
        How many there are.
    once, missing, repeated : int
        Records that stand in it exactly once, not at all, several times.
    """

    epoch: int
    records: int
    once: int
    missing: int
    repeated: int

    @property
    def ok(self) -> bool:
        """Every record once."""
        return self.once == self.records


@dataclass(frozen=True)
class DemoReport:
    """What a run of `shardkeep.demo.run` did and found.

    Attributes
    ----------
    output : str
        The folder with `report.html`, `results.h5`, the shards and the workers' files.
    seed, workers, epochs, batch_size : int
        As run; `batch_size` is of one worker.
    records, held_out_records, size_bytes : int
        Records of the training part and of the held-out part; bytes of all shards.
    shard_records : tuple of int
        Records of each training shard.
    steps, lost_steps : int
        Steps that stand, and steps that were done, lost with a killed worker, and done again.
    images_per_second : float
        Training, all workers together, lost steps included, starting of processes excluded.
    seconds : float
        The whole run.
    peak_open_files, open_files_limit : int
        Of any one worker, and what the system allows a process.
    accuracy : float
        On the held-out part, 0 to 1.
    rows_merged : int
        Rows of predictions in `results.h5`.
    deaths : tuple of Death
        The kills and where the run went on.
    uses : tuple of EpochUse
        Counted from the predictions in `results.h5`, without the receipts.
    audit : dict
        `shardkeep.plan.AuditReport.to_dict` of the receipts in `results.h5`; empty if it failed.
    checks : tuple of Check
        All that was tested.
    """

    output: str
    seed: int
    workers: int
    epochs: int
    batch_size: int
    records: int
    held_out_records: int
    size_bytes: int
    shard_records: tuple[int, ...]
    steps: int
    lost_steps: int
    images_per_second: float
    seconds: float
    peak_open_files: int
    open_files_limit: int
    accuracy: float
    rows_merged: int
    deaths: tuple[Death, ...]
    uses: tuple[EpochUse, ...]
    audit: dict[str, Any]
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every check holds."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-able."""
        return {"ok": self.ok, **asdict(self)}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and value of what the table shows."""
        shards = self.shard_records
        yield "records", f"{self.records:,} to train on, {self.held_out_records:,} held out"
        yield (
            "shards",
            f"{len(shards)} of {min(shards)} to {max(shards)} records, {self.size_bytes / 1e6:.1f} MB in all",
        )
        yield (
            "steps",
            f"{self.steps} in {plural(self.epochs, 'epoch')}"
            + (f", and {self.lost_steps} that were lost and redone" if self.lost_steps else ""),
        )
        yield "images/s", f"{self.images_per_second:,.0f} through reading and training"
        yield "peak open files", f"{self.peak_open_files} of {self.open_files_limit:,} in any one worker"
        yield "accuracy, held out", f"{self.accuracy:.1%}"
        yield "rows merged", f"{self.rows_merged:,} predictions into results.h5"
        for death in self.deaths:
            yield "killed", f"worker {death.rank} (pid {death.pid}) by SIGKILL at step {death.step}"
            yield (
                "resumed",
                (
                    f"from step {death.resumed_step} with {plural(death.workers_after, 'worker')} "
                    f"instead of {death.workers_before}"
                ),
            )
        yield "took", f"{self.seconds:.1f} s"

    def commands(self) -> tuple[tuple[str, str], ...]:
        """Commands that look further, ready for a shell, and what each is for."""
        shard = f"data/train-00000-of-{len(self.shard_records):05d}.tfrecord"
        return tuple(
            (f"shardkeep {verb} {shlex.quote(f'{self.output}/{file}')}", purpose)
            for verb, file, purpose in (
                ("audit", "results.h5", "the proof from the receipts, again"),
                ("audit", "run", "the same from the workers' own files"),
                ("info", "results.h5", "what is in the merged file"),
                ("info", "run", "which worker committed what"),
                ("info", shard, "what is in a shard"),
                ("cat", shard, "its records"),
            )
        )


def plural(number: int, noun: str, many: str = "") -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> plural(1, "step"), plural(3, "step"), plural(2, "process", "processes")
    ('1 step', '3 steps', '2 processes')
    """
    return f"{number} {noun if number == 1 else many or noun + 's'}"
