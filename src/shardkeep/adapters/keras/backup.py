"""Callback that saves and restores a model together with the state of its loader."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep import files
from shardkeep.adapters.keras.dataset import PyDataset
from shardkeep.adapters.keras.progress import LoaderProgress
from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan.checks import checked_int

__all__ = ["BackupAndRestore"]

_NAME = "latest.weights.h5"
_UNFINISHED = "unfinished.weights.h5"  # Keras writes to names with this end only
_STATE = "shardkeep_state"


class BackupAndRestore(LoaderProgress):
    """Callback that backs up a model with the state of its loader, and resumes both after an interruption.

    It replaces ``keras.callbacks.BackupAndRestore``, and moves the loader as `LoaderProgress` does. A run
    that is started again continues with the batch after the backup, also in the middle of an epoch.

    Parameters
    ----------
    data : PyDataset
        The dataset that is passed to `fit`, of one process.
    backup_dir : path
        Folder of the backup; created if it is missing.
    save_freq : "epoch" or int
        Save at the end of each epoch, or after this number of batches.
    delete_checkpoint : bool
        True to delete the backup at the end of `fit`.

    Raises
    ------
    PlanError
        The loader belongs to several ranks; the model is not built at the beginning of `fit`; or the backup
        belongs to another data set.
    CorruptDataError
        The file in `backup_dir` has no state of a loader.

    Notes
    -----
    Weights, optimizer, epoch, loader state and receipts are one file, which replaces the last one as a
    whole: a kill at any instant leaves the old backup or the new one. If a `WorkerFileLogger` of the same
    dataset is passed to `fit`, its rows are committed before each backup.

    Means of losses and metrics are not saved: after a resume in the middle of an epoch, its logs are those
    of the rest.
    """

    def __init__(
        self,
        data: PyDataset,
        backup_dir: str | os.PathLike[str],
        save_freq: Literal["epoch"] | int = "epoch",
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__(data)
        if save_freq != "epoch":
            save_freq = checked_int("save_freq", save_freq, 1, 1 << 62)
        if data.loader.world.size > 1:
            raise PlanError(
                f"the loader belongs to rank {data.loader.world.rank} of {data.loader.world.size}, and"
                " BackupAndRestore is for one process: save loader.state_dict() with your own checkpoint"
            )
        self.save_freq = save_freq
        self.delete_checkpoint = delete_checkpoint
        self._folder = os.path.abspath(backup_dir)
        self._path = os.path.join(self._folder, _NAME)
        self._earlier: list[dict[str, Any]] = []
        self._epoch = self._saved = 0

    def receipts(self) -> list[dict[str, Any]]:
        """Return the receipts of the whole training, those of the runs before the resume included.

        Returns
        -------
        list of dict
            Receipts for `shardkeep.plan.audit`.
        """
        return [*self._earlier, self.data.loader.receipt()]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Restore the backup, if there is one."""
        super().on_train_begin(logs)
        if not self.model.built:
            raise PlanError(
                "the model is not built: add an Input, or call model.build(shape) or the model on a batch,"
                " before fit, so that BackupAndRestore can restore its weights"
            )
        if os.path.lexists(self._path):
            self._restore()
        self._saved = self._passes.used

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Begin an epoch."""
        super().on_epoch_begin(epoch, logs)
        self._epoch = epoch
        self.model._initial_epoch = None  # of this call of fit only

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Move the loader over a batch, and save after `save_freq` batches."""
        super().on_train_batch_end(batch, logs)
        # After the last batch of an epoch, its end saves: a resume must not begin that epoch again.
        if self._is_due() and self.data.loader.position and batch + 1 < self.params["steps"]:
            self._save(self._epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Save at the end of an epoch."""
        super().on_epoch_end(epoch, logs)
        if self._passes.logger is not None:
            self._passes.logger.write_epoch(epoch, logs)
        if self.save_freq == "epoch" or self._is_due():
            self._save(epoch + 1)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        """Delete the backup, if `delete_checkpoint` is True."""
        super().on_train_end(logs)
        if self.delete_checkpoint:
            for name in (_NAME, _UNFINISHED):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder, name))
            with contextlib.suppress(OSError):
                os.rmdir(self._folder)

    def _is_due(self) -> bool:
        return self.save_freq != "epoch" and self._passes.used - self._saved >= self.save_freq

    def _save(self, epoch: int) -> None:
        if self._passes.logger is not None:
            self._passes.logger.commit()
        os.makedirs(self._folder, exist_ok=True)
        state = {
            "epoch": epoch,
            "loader": self.data.loader.state_dict(),
            "receipts": self.receipts(),
        }
        with files.publish_path(self._path, exists="replace") as path:
            weights = os.path.join(self._folder, _UNFINISHED)
            self.model.save_weights(weights, overwrite=True)
            with h5py.File(weights, "r+") as file:
                file[_STATE] = np.frombuffer(json.dumps(state).encode(), np.uint8)
            os.replace(weights, path)
        self._saved = self._passes.used

    def _restore(self) -> None:
        with h5py.File(self._path, "r") as file:
            if _STATE not in file:
                raise CorruptDataError(
                    f"{self._path} has no state of a loader: it was not written by this callback; remove it,"
                    " or pass another backup_dir"
                )
            state = json.loads(file[_STATE][()].tobytes())
        self.data.loader.load_state_dict(state["loader"])
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(self._path)
        self._earlier = state["receipts"]
        self.model._initial_epoch = state["epoch"]
