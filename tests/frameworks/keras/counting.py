"""A Keras model that counts how often it was trained on each record."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from tests.frameworks.exactly_once import RECORDS


class _Sum(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred


class _Count(keras.metrics.Sum):
    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(keras.ops.ones_like(y_pred), sample_weight)


def counting_model(built: bool = False, **options: Any) -> keras.Model:
    """Return a model whose weight of each record falls by the sum of the record's sample weights."""
    model = keras.Sequential(
        [keras.layers.Embedding(RECORDS, 1, embeddings_initializer="zeros"), keras.layers.Reshape(())]
    )
    if built:
        model.build((None,))
    model.compile(
        keras.optimizers.SGD(1.0), _Sum(reduction="sum"), weighted_metrics=[_Count(name="count")], **options
    )
    return model


def trained(model: keras.Model) -> list[int]:
    """Return how often the model was trained on each record."""
    weights = keras.ops.convert_to_numpy(model.layers[0].embeddings).ravel()
    return (-weights).round(3).tolist()


class Passes(keras.callbacks.Callback):
    """The records of each epoch, as the model counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[list[int]] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.before = trained(self.model) if self.model.built else [0.0] * RECORDS

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        counts = np.array(trained(self.model)) - self.before
        assert (counts == counts.round()).all()
        self.records.append(np.repeat(np.arange(RECORDS), counts.astype(int)).tolist())
