"""The demo from end to end, phase by phase."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardkeep import files, hdf5
from shardkeep.demo.console import DemoProgress
from shardkeep.demo.data import Packed, pack
from shardkeep.demo.folder import reserved_folder
from shardkeep.demo.page.html import render
from shardkeep.demo.page.timeline import build_timeline
from shardkeep.demo.proof import held_out_accuracy, prove, read_results
from shardkeep.demo.report import Check, DemoReport
from shardkeep.demo.settings import Layout, Settings
from shardkeep.demo.train import Training, train
from shardkeep.plan.checks import checked_int
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run", "run_with_settings"]

_MIN_ACCURACY = 0.9
_EPOCHS_FOR_MIN_ACCURACY = 3  # fewer do not reach the minimum, whatever the data
_MAX_WORKERS = 64


def run(
    output: str | os.PathLike[str] = "shardkeep-demo",
    *,
    workers: int = 4,
    epochs: int = 3,
    seed: int = 0,
    progress: Console | None = None,
) -> DemoReport:
    """Pack, train, kill a worker, resume with one fewer, merge, and prove which records were used.

    Real images are packed into TFRecord shards. `workers` processes train one classifier on them; each reads
    its part through `shardkeep.Loader` and writes its own HDF5 file. In the second epoch one worker gets
    SIGKILL. The run resumes from the last checkpoint with one process fewer. At the end the files are merged,
    and every record must have been used exactly once in every epoch. The demo needs Linux, but no server and
    no framework.

    Parameters
    ----------
    output : path, optional
        Folder for all files; created if it does not exist. The folder of an earlier demo is reused.
    workers : int, optional
        Number of processes at the start, 1 to 64. A single worker is killed and restarted.
    epochs : int, optional
        Number of epochs, 1 or more.
    seed : int, optional
        Seed of split, order and weights; equal seeds give equal results.
    progress : rich.console.Console, optional
        Console that shows progress bars if it is a terminal.

    Returns
    -------
    DemoReport
        A report whose ``ok`` is False if a check failed; the command then exits with code 3.

    Raises
    ------
    PlanError
        `workers`, `epochs` or `seed` is not an int, or out of range.
    ExistsError
        `output` is not empty and was not created by a demo.
    LockTimeoutError
        Another demo is running in the folder.
    DurabilityError
        A file could not be written, for lack of space or permission.
    MissingExtraError
        scikit-learn or Pillow is not installed.
    ShardkeepError
        A worker ended that the demo had not killed.

    Notes
    -----
    No worker outlives the call, also after Ctrl-C. If the calling process is killed, the workers exit. Every
    file is published atomically.
    """
    checked_int("workers", workers, 1, _MAX_WORKERS)
    checked_int("epochs", epochs, 1, 10_000)
    checked_int("seed", seed, 0, 2**63 - 1)
    with DemoProgress(progress) as shown:
        return run_with_settings(output, Settings(workers=workers, epochs=epochs, seed=seed), shown)


def run_with_settings(
    output: str | os.PathLike[str], settings: Settings, progress: DemoProgress
) -> DemoReport:
    """Run the demo with all settings, such as the kills that a test plans."""
    began_s = time.monotonic()
    with reserved_folder(output) as layout:
        packed = pack(
            layout.data, seed=settings.seed, images=settings.images, on_record=progress.update_packing
        )
        training = train(layout, packed, settings, progress)

        progress.update_finishing(0, 3, "merge the workers' files")
        hdf5.merge(layout.run, layout.results, exists="fail")
        progress.update_finishing(1, 3, "check every record")
        results = read_results(layout.results)
        proof = prove(layout, packed, settings.epochs, results)
        accuracy = held_out_accuracy(layout, packed, settings)
        report = DemoReport(
            output=os.fspath(layout.root),
            seed=settings.seed,
            workers=settings.workers,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            records=packed.records,
            held_out_records=packed.held_out_records,
            size_bytes=packed.size_bytes,
            shard_records=packed.counts,
            steps=training.steps,
            lost_steps=len(training.executions) - training.steps,
            images_per_second=training.images_per_second,
            seconds=time.monotonic() - began_s,
            peak_open_files=training.open_files,
            open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            accuracy=accuracy,
            rows_merged=len(results.predictions),
            deaths=tuple(training.deaths),
            uses=proof.uses,
            audit=proof.audit,
            checks=(*proof.checks, *_training_checks(training, settings, packed, accuracy)),
        )
        progress.update_finishing(2, 3, "write report.html")
        _write(layout, report, render(report, build_timeline(training, results, packed, report)))
        return report


def _training_checks(
    training: Training, settings: Settings, packed: Packed, accuracy: float
) -> Iterator[Check]:
    planned = settings.planned_kills(packed.records)
    if planned:
        survived = all(death.lost_steps for death in training.deaths)
        yield Check(
            "kill survived",
            len(training.deaths) == len(planned) and survived,
            "; ".join(
                f"{counted(death.lost_steps, 'step')} ({death.lost_rows} records) lost and redone"
                for death in training.deaths
            )
            or "no worker was killed",
        )
    minimum = _MIN_ACCURACY if settings.epochs >= _EPOCHS_FOR_MIN_ACCURACY else 0.5
    yield Check(
        "learned", accuracy >= minimum, f"{accuracy:.1%} of the held-out part, {minimum:.0%} required"
    )


def _write(layout: Layout, report: DemoReport, html: str) -> None:
    with files.publish(layout.summary, exists="replace") as out:
        out.write(json.dumps(report.to_dict(), indent=1).encode() + b"\n")
    with files.publish(layout.report, exists="replace") as out:
        out.write(html.encode())
