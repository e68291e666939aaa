"""Results of a demo run, as plain numbers and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._paths_in_messages import as_argument
from shardkeep._summary import summary
from shardkeep.quantities import counted

__all__ = ["Check", "Death", "DemoReport", "EpochUse"]


@dataclass(frozen=True)
class Death:
    """One killed worker and the restart after it.

    Attributes
    ----------
    rank, pid, step, moment
        The worker, and the step and moment at which it was killed (see `Kill`).
    resumed_step : int
        Step of the checkpoint from which the run resumed.
    workers_before, workers_after : int
        World size before and after.
    lost_steps, lost_rows : int
        Steps and rows after that checkpoint, which were repeated.
    away_s : float
        Time from the death to the first step of the new world, in seconds.
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

    __repr__ = summary


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes
    ----------
    name : str
    ok : bool
    finding : str
        The finding, in one line.
    """

    name: str
    ok: bool
    finding: str

    __repr__ = summary


@dataclass(frozen=True)
class EpochUse:
    """Number of uses of the records of one epoch, counted in the merged table of predictions.

    Attributes
    ----------
    epoch : int
        Number of the epoch, from 0.
    records : int
        Number of records of the epoch.
    once, missing, repeated : int
        Number of records that are in the table exactly once, not at all, or several times.
    """

    epoch: int
    records: int
    once: int
    missing: int
    repeated: int

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if every record was used exactly once."""
        return self.once == self.records


@dataclass(frozen=True)
class DemoReport:
    """Settings, numbers and checks of one run of `shardkeep.demo.run`.

    Attributes
    ----------
    output : str
        Folder with `report.html`, `results.h5`, the shards and the workers' files.
    seed, workers, epochs, batch_size : int
        Settings of the run; `batch_size` is that of one worker.
    records, held_out_records, size_bytes : int
        Number of records of the training part and of the held-out part; size of all shards.
    shard_records : tuple of int
        Number of records of each training shard.
    steps, lost_steps : int
        Number of steps that count, and of steps that were lost with a killed worker and repeated.
    images_per_second : float
        Training speed of all workers together, with lost steps and without the start of processes.
    seconds : float
        Duration of the whole run.
    peak_open_files, open_files_limit : int
        Largest number of descriptors that any worker had open, and the limit of the system for a process.
    accuracy : float
        Accuracy on the held-out part, 0 to 1.
    rows_merged : int
        Number of predictions in `results.h5`.
    deaths : tuple of Death
        Killed workers, in order.
    uses : tuple of EpochUse
        Uses of each epoch, counted in the predictions of `results.h5` without the receipts.
    audit : dict
        `shardkeep.plan.AuditReport.to_dict` of the receipts in `results.h5`; empty if the audit failed.
    checks : tuple of Check
        All checks.
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

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if every check holds."""
        return all(check.ok for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self)}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each row of the table.

        Yields
        ------
        name, value : str
        """
        shards = self.shard_records
        yield "records", f"{self.records:,} to train on, {self.held_out_records:,} held out"
        yield (
            "shards",
            f"{len(shards)} of {min(shards)} to {max(shards)} records, {self.size_bytes / 1e6:.1f} MB in all",
        )
        yield (
            "steps",
            f"{self.steps} in {counted(self.epochs, 'epoch')}"
            + (f", and {self.lost_steps} that were lost and redone" if self.lost_steps else ""),
        )
        yield "images/s", f"{self.images_per_second:,.0f} through reading and training"
        yield "peak open files", f"{self.peak_open_files} of {self.open_files_limit:,} in any one process"
        yield "accuracy, held out", f"{self.accuracy:.1%}"
        yield "rows merged", f"{self.rows_merged:,} predictions into results.h5"
        for death in self.deaths:
            yield "killed", f"rank {death.rank} (pid {death.pid}) by SIGKILL at step {death.step}"
            yield (
                "resumed",
                (
                    f"from step {death.resumed_step} with {counted(death.workers_after, 'rank')} "
                    f"instead of {death.workers_before}"
                ),
            )
        yield "took", f"{self.seconds:.1f} s"

    def commands(self) -> tuple[tuple[str, str], ...]:
        """Return commands that inspect the files, quoted for a shell, with the purpose of each."""
        shard = f"data/train-00000-of-{len(self.shard_records):05d}.tfrecord"
        return tuple(
            (f"shardkeep {verb} {as_argument(f'{self.output}/{file}')}", purpose)
            for verb, file, purpose in (
                ("audit", "results.h5", "the proof from the receipts"),
                ("audit", "run", "the same from the workers' files"),
                ("info", "results.h5", "contents of the merged file"),
                ("info", "run", "commits of each worker"),
                ("info", shard, "contents of a shard"),
                ("cat", shard, "its records"),
            )
        )
