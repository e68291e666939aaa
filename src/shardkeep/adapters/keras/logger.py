"""Callback that writes logs and predictions through a worker file."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.keras.dataset import PyDataset
from shardkeep.adapters.keras.progress import LoaderProgress
from shardkeep.errors import PlanError
from shardkeep.hdf5 import WorkerFile
from shardkeep.plan.checks import checked_int

if TYPE_CHECKING:
    import keras
else:
    keras = import_extra("keras", "shardkeep.adapters.keras")

__all__ = ["WorkerFileLogger"]

_EPOCH = "logs/epoch"
_KIND = "shardkeep_keras"


class WorkerFileLogger(LoaderProgress):
    """Callback that writes the logs of `fit` and the outputs of `predict` through a `WorkerFile`.

    It moves the loader as `LoaderProgress` does, and commits with the loader's receipt and state.

    Parameters
    ----------
    data : PyDataset
        The dataset that is passed to `fit` or `predict`.
    out : WorkerFile
        File of this rank, of one kind of call: `fit` and `predict` need different runs.
    commit_freq : "epoch" or int
        In `predict`: commit at the end, or after this number of batches. `fit` commits at the end of each
        epoch, and before each backup of `BackupAndRestore`.

    Raises
    ------
    PlanError
        The file has rows of another data set, or of another kind of call.

    Notes
    -----
    `fit` appends a row to ``logs/epoch``, ``logs/loss`` and each other log at the end of an epoch; a log
    that is missing in an epoch is NaN there. `predict` appends the output of each record to
    ``predictions``, or to ``predictions/NAME`` for each of several outputs, without padded rows; a loader
    with ``with_ids=True`` adds ``shard`` and ``index``.

    **The file follows the loader.** When a call begins, commits that are newer than the place of the loader
    are rolled back: those after the backup from which it was restored, or all of them at the beginning of
    the data. The step of a commit is the number of records that all ranks have delivered since epoch 0. To
    continue an interrupted `predict`, pass ``out.committed_state`` to ``loader.load_state_dict``.
    """

    def __init__(
        self, data: PyDataset, out: WorkerFile, commit_freq: Literal["epoch"] | int = "epoch"
    ) -> None:
        super().__init__(data)
        if not isinstance(out, WorkerFile):
            raise PlanError(f"out must be a shardkeep.hdf5.WorkerFile, not {type(out).__name__}")
        if commit_freq != "epoch":
            commit_freq = checked_int("commit_freq", commit_freq, 1, 1 << 62)
        self.out = out
        self.commit_freq = commit_freq
        self._follows = False
        self._written: int | None = None
        self._saved = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin a call of `fit`."""
        super().on_train_begin(logs)
        self._passes.logger = self
        self._follows, self._written = False, None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Roll the file back to the loader, which other callbacks may have restored before."""
        super().on_epoch_begin(epoch, logs)
        self._follow("fit")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the logs of an epoch, and commit."""
        super().on_epoch_end(epoch, logs)
        self.write_epoch(epoch, logs)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """End a call of `fit`."""
        super().on_train_end(logs)
        self._passes.logger = None

    def on_predict_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Roll the file back to the loader."""
        super().on_predict_begin(logs)
        self._follows = False
        self._follow("predict")
        self._saved = self._passes.used

    def on_predict_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Write the outputs of the records of a batch."""
        super().on_predict_batch_end(batch, logs)
        self._write_outputs((logs or {})["outputs"])
        if self.commit_freq != "epoch" and self._passes.used - self._saved >= self.commit_freq:
            self.commit()

    def on_predict_end(self, logs: dict[str, Any] | None = None) -> None:
        """Commit the rest."""
        super().on_predict_end(logs)
        self.commit()

    def write_epoch(self, epoch: int, logs: dict[str, Any] | None) -> None:
        """Write the logs of an epoch and commit; does nothing if they are written.

        Parameters
        ----------
        epoch : int
            Number of the epoch in Keras.
        logs : dict, optional
            Logs of the epoch.
        """
        if self._written == epoch:
            return
        self._written = epoch
        out = self.out
        rows = {**out.committed_rows}
        for name, count in out.uncommitted_rows.items():
            rows[name] = rows.get(name, 0) + count
        before = rows.get(_EPOCH, 0)
        out.append(_EPOCH, np.array([epoch], np.int64))
        values = {f"logs/{name}": value for name, value in (logs or {}).items()}
        for name in sorted({*values, *(name for name in rows if name.startswith("logs/"))} - {_EPOCH}):
            missing = before - rows.get(name, 0)
            value = float(values.get(name, np.nan))
            out.append(name, np.array([np.nan] * missing + [value], np.float64))
        self.commit()

    def commit(self) -> None:
        """Commit all rows so far as those up to the place of the loader."""
        step = self._step()
        if self.out.committed_step is None or step > self.out.committed_step:
            loader = self.data.loader
            self.out.commit(step=step, receipt=loader.receipt(), state=loader.state_dict())
        self._saved = self._passes.used

    def _step(self) -> int:
        loader = self.data.loader
        return loader.epoch * loader.positions + loader.position

    def _follow(self, kind: str) -> None:
        if self._follows:
            return
        self._follows = True
        out, step = self.out, self._step()
        found = out.attributes().get(_KIND, kind)
        if found != kind:
            raise PlanError(f"{out!r} has the rows of {found}: {kind} needs a WorkerFile of another run")
        if out.committed_state is not None:
            # Raises if it is of another data set.
            copy.copy(self.data.loader).load_state_dict(out.committed_state)
        if out.committed_step is not None and out.committed_step > step:
            out.rollback(step=step or None)
        out.set_attribute(_KIND, kind)

    def _write_outputs(self, outputs: Any) -> None:
        parts = self._passes.rows
        if not parts:
            return
        named = _named(outputs)
        lengths = len(next(iter(named.values()))) // len(parts)
        valid = np.concatenate(
            [np.ones(lengths, bool) if part.valid is None else part.valid for part in parts]
        )
        for name, value in named.items():
            self.out.append(name, value[valid])
        for name in parts[0].ids:
            self.out.append(name, np.concatenate([part.ids[name] for part in parts])[valid])


def _named(outputs: Any) -> dict[str, np.ndarray[Any, Any]]:
    if isinstance(outputs, dict):
        items = [(f"predictions/{name}", value) for name, value in outputs.items()]
    elif isinstance(outputs, (list, tuple)):
        items = [(f"predictions/{number}", value) for number, value in enumerate(outputs)]
    else:
        items = [("predictions", outputs)]
    return {name: keras.ops.convert_to_numpy(value) for name, value in items}
