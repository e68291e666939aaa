"""The demo from end to end, phase by phase."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardkeep import files, hdf5
from shardkeep.demo import page
from shardkeep.demo.console import Watch, watching
from shardkeep.demo.data import Packed, pack
from shardkeep.demo.folder import claim, machine_errors
from shardkeep.demo.proof import held_out_accuracy, prove, read_results
from shardkeep.demo.report import Check, DemoReport, plural
from shardkeep.demo.settings import Layout, Settings
from shardkeep.demo.story import tell
from shardkeep.demo.train import Training, train
from shardkeep.errors import PlanError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["perform", "run"]

_ACCURACY_FLOOR = 0.9
_EPOCHS_TO_LEARN = 3  # with fewer the floor would test the patience, not the data
_MOST_WORKERS = 64


def run(
    output: str | os.PathLike[str] = "shardkeep-demo",
    *,
    workers: int = 4,
    epochs: int = 3,
    seed: int = 0,
    progress: Console | None = None,
) -> DemoReport:
    """Pack, train, kill a worker, go on with one fewer, merge, and prove what was used.

    Real images are packed into TFRecord shards; `workers` processes train one classifier on them,
    each reading its part through `shardkeep.Loader` and writing its own HDF5 file. In the second
    epoch one of them gets SIGKILL. The run goes back to the last checkpoint and on with one
    process fewer; at the end the files are merged, and every record must have been used exactly
    once in every epoch. Linux; nothing but processes and files: no server, no framework.

    Parameters
    ----------
    output : path, optional
        Folder for all files; made if it is not there. One that an earlier demo made is reused.
    workers : int, optional
        Processes to begin with, 1 to 64. A single one is killed as well, and started again.
    epochs : int, optional
        1 or more.
    seed : int, optional
        Equal seeds give equal orders, weights and results.
    progress : rich.console.Console, optional
        Shows bars while it works, if it is a terminal.

    Returns
    -------
    DemoReport
        Its ``ok`` is False when a check failed; the command then ends with exit code 3.

    Raises
    ------
    PlanError
        `workers`, `epochs` or `seed` is out of range.
    ExistsError
        `output` has other things in it.
    LockTimeoutError
        Another demo is running in it.
    DurabilityError
        A file could not be written: no room, no rights.
    MissingExtraError
        scikit-learn or Pillow is not installed.
    ShardkeepError
        A worker ended that the demo had not killed.

    Notes
    -----
    No process outlives the call, however it ends, Ctrl-C included; if it is killed itself, the
    workers notice and leave. A file is whole under its name or not there.
    """
    _check("workers", workers, 1, _MOST_WORKERS)
    _check("epochs", epochs, 1, 10_000)
    _check("seed", seed, 0, 2**63 - 1)
    with watching(progress) as watch:
        return perform(output, Settings(workers=workers, epochs=epochs, seed=seed), watch)


def perform(output: str | os.PathLike[str], settings: Settings, watch: Watch) -> DemoReport:
    """`run` with every setting; what tests call to kill more often or in other places."""
    began_s = time.monotonic()
    with claim(output) as layout, machine_errors(layout.root):
        packed = pack(layout.data, seed=settings.seed, images=settings.images, tick=watch.packing)
        training = train(layout, packed, settings, watch)

        watch.finishing(0, 3, "merge the workers' files")
        hdf5.merge(layout.run, layout.results, exists="fail")
        watch.finishing(1, 3, "check every record")
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
            lost_steps=len(training.ticks) - training.steps,
            images_per_second=training.images_per_second,
            seconds=time.monotonic() - began_s,
            peak_open_files=training.open_files,
            open_files_limit=_open_files_limit(),
            accuracy=accuracy,
            rows_merged=len(results.predictions),
            deaths=tuple(training.deaths),
            uses=proof.uses,
            audit=proof.audit,
            checks=(*proof.checks, *_other_checks(training, settings, packed, accuracy)),
        )
        watch.finishing(2, 3, "write report.html")
        _write(layout, report, page.render(report, tell(training, results, packed, report)))
        return report


def _other_checks(training: Training, settings: Settings, packed: Packed, accuracy: float) -> Iterator[Check]:
    planned = settings.planned_kills(packed.records)
    if planned:
        survived = all(death.lost_steps for death in training.deaths)
        yield Check(
            "kill survived",
            len(training.deaths) == len(planned) and survived,
            "; ".join(
                f"{plural(death.lost_steps, 'step')} ({death.lost_rows} records) lost and redone"
                for death in training.deaths
            )
            or "no worker was killed",
        )
    floor = _ACCURACY_FLOOR if settings.epochs >= _EPOCHS_TO_LEARN else 0.5
    yield Check("learned", accuracy >= floor, f"{accuracy:.1%} of the held-out part, {floor:.0%} asked for")


def _write(layout: Layout, report: DemoReport, html: str) -> None:
    with files.publish(layout.summary, exists="replace") as out:
        out.write(json.dumps(report.to_dict(), indent=1).encode() + b"\n")
    with files.publish(layout.report, exists="replace") as out:
        out.write(html.encode())


def _open_files_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise PlanError(f"{name}={value}: the demo takes {low} to {high}")
