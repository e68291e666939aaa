"""Settings of a demo run, and the layout of its folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Kill", "Layout", "Settings"]


@dataclass(frozen=True)
class Kill:
    """A planned SIGKILL to one worker.

    Attributes
    ----------
    step : int
        Step in which the worker is killed.
    rank : int
        Rank of the worker.
    moment : {"computing", "publishing"}
        "computing": the worker has read and computed the step; no worker has committed it.
        "publishing": every worker has committed the step to its file, and the checkpoint is never published;
        `step` must be a checkpoint step.
    """

    step: int
    rank: int
    moment: str = "computing"


@dataclass(frozen=True)
class Settings:
    """Settings of a run; two runs with equal settings have equal results.

    Attributes
    ----------
    workers : int
        Number of processes at the start.
    epochs, seed : int
        Number of passes over the training part; seed of split, weights and order.
    global_batch : int
        Rows of one step over all workers at the start. Each worker keeps its share of it (`batch_size`) when
        the world shrinks.
    checkpoint_every : int
        Number of steps between two checkpoints.
    hidden : int
        Width of the hidden layer of the classifier.
    images : int or None
        Number of images to use, from the first; None for all 1,797.
    kills : tuple of Kill or None
        Planned kills; None for one worker in the second epoch.
    """

    workers: int = 4
    epochs: int = 3
    seed: int = 0
    global_batch: int = 64
    checkpoint_every: int = 5
    hidden: int = 48
    images: int | None = None
    kills: tuple[Kill, ...] | None = None

    @property
    def batch_size(self) -> int:
        """Rows of one step of one worker."""
        return max(1, self.global_batch // self.workers)

    def is_checkpoint(self, step: int) -> bool:
        """Return True if a checkpoint is due after `step` (the last step of a run always has one)."""
        return step % self.checkpoint_every == 0

    def planned_kills(self, records: int) -> tuple[Kill, ...]:
        """Return the kills of a run with `records` training records.

        The default is one kill in the middle of the second epoch (or of the only one), two or more steps
        after a checkpoint, so that finished steps are lost.

        Examples
        --------
        >>> Settings(workers=4).planned_kills(1438)
        (Kill(step=33, rank=1, moment='computing'),)
        >>> Settings(workers=1, epochs=1).planned_kills(1438)
        (Kill(step=13, rank=0, moment='computing'),)
        """
        if self.kills is not None:
            return self.kills
        per_epoch = -(-records // (self.batch_size * self.workers))
        middle = (per_epoch if self.epochs > 1 else 0) + per_epoch // 2
        # The last step before a checkpoint, where a kill loses most steps.
        step = middle - middle % self.checkpoint_every + max(1, self.checkpoint_every - 2)
        return (Kill(step=min(step, per_epoch * self.epochs), rank=min(1, self.workers - 1)),)


@dataclass(frozen=True)
class Layout:
    """Paths in an output folder.

    Examples
    --------
    >>> Layout(Path("shardkeep-demo")).results.as_posix()
    'shardkeep-demo/results.h5'
    """

    root: Path

    @property
    def marker(self) -> Path:
        """The marker of a folder that a demo created, which a second run may reuse."""
        return self.root / ".shardkeep-demo"

    @property
    def data(self) -> Path:
        """The folder of the packed shards."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """The run folder, with one HDF5 file per worker."""
        return self.root / "run"

    @property
    def checkpoint(self) -> Path:
        """The newest checkpoint: model, optimiser and loader state."""
        return self.root / "checkpoint.npz"

    @property
    def results(self) -> Path:
        """The merged files of all workers."""
        return self.root / "results.h5"

    @property
    def report(self) -> Path:
        """The report as a web page."""
        return self.root / "report.html"

    @property
    def summary(self) -> Path:
        """The report as JSON."""
        return self.root / "report.json"
