"""What a demo run is made of: its settings, and where its files lie."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Kill", "Layout", "Settings"]


@dataclass(frozen=True)
class Kill:
    """A SIGKILL that the demo sends to one of its own workers.

    Attributes
    ----------
    step : int
        The training step that the worker does not survive.
    rank : int
        Which worker.
    moment : {"computing", "publishing"}
        "computing": it has read and computed the step, nothing of it is committed anywhere.
        "publishing": every worker has committed the step to its own file, and the checkpoint that
        would make it count is never published; `step` must be a checkpoint step.
    """

    step: int
    rank: int
    moment: str = "computing"


@dataclass(frozen=True)
class Settings:
    """Everything that decides the outcome of a run; two runs with equal settings agree.

    Attributes
    ----------
    workers : int
        Operating-system processes to begin with.
    epochs, seed : int
        Passes over the training part; what the split, the weights and the order come from.
    global_batch : int
        Rows of one step over all workers at the start. Each worker keeps its own share of it
        (`batch_size`) when the world shrinks.
    checkpoint_every : int
        Steps between two checkpoints.
    hidden, learning_rate, momentum
        Of the classifier and its optimiser.
    images : int or None
        Use only the first so many images (tests); None for all 1,797.
    kills : tuple of Kill or None
        None: one worker in the second epoch, chosen by `run`. Tests pass their own.
    """

    workers: int = 4
    epochs: int = 3
    seed: int = 0
    global_batch: int = 64
    checkpoint_every: int = 5
    hidden: int = 48
    learning_rate: float = 0.03
    momentum: float = 0.9
    images: int | None = None
    kills: tuple[Kill, ...] | None = None

    @property
    def batch_size(self) -> int:
        """Rows of one step of one worker."""
        return max(1, self.global_batch // self.workers)

    def is_checkpoint(self, step: int) -> bool:
        """Whether a checkpoint is due after `step` (the last step of a run always has one)."""
        return step % self.checkpoint_every == 0

    def planned_kills(self, records: int) -> tuple[Kill, ...]:
        """Which workers will be killed, for a training part of `records` records.

        The default is one kill in the middle of the second epoch (of the only one, where there is
        no second), two or more steps after a checkpoint, so that finished work is lost.

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
        # One step short of the next checkpoint: the most work that a kill can cost.
        step = middle - middle % self.checkpoint_every + max(1, self.checkpoint_every - 2)
        return (Kill(step=min(step, per_epoch * self.epochs), rank=min(1, self.workers - 1)),)


@dataclass(frozen=True)
class Layout:
    """The names below an output folder.

    Examples
    --------
    >>> Layout(Path("shardkeep-demo")).results.as_posix()
    'shardkeep-demo/results.h5'
    """

    root: Path

    @property
    def marker(self) -> Path:
        """Says that the folder was made by the demo, so that a second run may reuse it."""
        return self.root / ".shardkeep-demo"

    @property
    def data(self) -> Path:
        """The packed shards."""
        return self.root / "data"

    @property
    def run(self) -> Path:
        """One HDF5 file per worker."""
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
        """The page for people."""
        return self.root / "report.html"

    @property
    def summary(self) -> Path:
        """The same findings for programs."""
        return self.root / "report.json"
