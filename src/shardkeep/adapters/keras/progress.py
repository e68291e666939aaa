"""Callback that moves a loader with the batches that a model used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardkeep._extras import import_extra
from shardkeep.adapters.keras.dataset import PyDataset
from shardkeep.errors import PlanError

if TYPE_CHECKING:
    import keras
else:
    keras = import_extra("keras", "shardkeep.adapters.keras")

__all__ = ["LoaderProgress"]

_Logs = dict[str, Any] | None


class LoaderProgress(keras.callbacks.Callback):
    """Callback that moves the loader of a `PyDataset` with the batches that the model used.

    ``loader.state_dict()`` and ``loader.receipt()`` then have exactly these batches, at the end of each and
    after `fit`, `evaluate` or `predict`. The next pass continues there: with the next epoch, or with the
    rest of an epoch that was left by `stop_training`, an error, or resumed by `load_state_dict`.

    Parameters
    ----------
    data : PyDataset
        The dataset that is passed to `fit`, `evaluate` or `predict`.

    Raises
    ------
    PlanError
        During `fit`: it was called with ``shuffle=True``, which is Keras's default; or the loader pads the
        last batch, and the dataset has no targets with which weights could leave the padding out.
    """

    def __init__(self, data: PyDataset) -> None:
        super().__init__()
        if not isinstance(data, PyDataset):
            raise PlanError(
                f"data must be a shardkeep.adapters.keras.PyDataset, not {type(data).__name__}: make one of"
                " the Loader"
            )
        self.data = data
        self._passes = data._passes
        self._passes.has_callback = True

    def on_train_begin(self, logs: _Logs = None) -> None:
        """Begin a call of `fit`."""
        if self.data.y is None and self.data.loader.remainder == "mask":
            raise PlanError(
                "without y there are no weights, so the model would be trained on the padding of the last"
                ' batch: pass y, or make the Loader with remainder="short"'
            )
        self._passes.start("fit")

    def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
        """Begin an epoch."""
        self._passes.start_epoch()

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """Move the loader over a batch."""
        self._passes.report("fit", batch)

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        """End an epoch."""
        self._passes.end_epoch()

    def on_train_end(self, logs: _Logs = None) -> None:
        """End a call of `fit`."""
        self._passes.end("fit")

    def on_test_begin(self, logs: _Logs = None) -> None:
        """Begin a call of `evaluate`."""
        self._passes.start("evaluate")

    def on_test_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """Move the loader over a batch."""
        self._passes.report("evaluate", batch)

    def on_test_end(self, logs: _Logs = None) -> None:
        """End a call of `evaluate`."""
        self._passes.end("evaluate")

    def on_predict_begin(self, logs: _Logs = None) -> None:
        """Begin a call of `predict`."""
        self._passes.start("predict")

    def on_predict_batch_end(self, batch: int, logs: _Logs = None) -> None:
        """Move the loader over a batch."""
        self._passes.report("predict", batch)

    def on_predict_end(self, logs: _Logs = None) -> None:
        """End a call of `predict`."""
        self._passes.end("predict")
