"""The datasets of the torch and TensorFlow adapters in `fit`, for back ends that take them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

keras = pytest.importorskip("keras")

from tests.frameworks.exactly_once import judge, make_loader, write_shards  # noqa: E402
from tests.frameworks.keras.counting import Passes, counting_model  # noqa: E402

# TensorFlow and torch of NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

BACKEND = keras.backend.backend()


def fit(data: Any) -> list[list[int]]:
    passes = Passes()
    counting_model(built=True).fit(data, epochs=3, callbacks=[passes], shuffle=False, verbose=0)
    return passes.records


# Keras finds out the length of an iterable dataset of torch by its end, and warns of that end.
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.skipif(BACKEND != "torch", reason="needs torch")
def test_fit_takes_a_torch_dataloader_that_makes_pairs(tmp_path: Path) -> None:
    from shardkeep.adapters.torch import DataLoader

    class Pairs(DataLoader):
        def __iter__(self) -> Iterator[Any]:
            return ((batch["x"], batch["x"], batch["valid"].float()) for batch in super().__iter__())

    loader = make_loader(write_shards(tmp_path))
    judge(fit(Pairs(loader)), [loader.receipt()])
    assert loader.epoch == 3


@pytest.mark.skipif(BACKEND != "tensorflow", reason="needs TensorFlow")
def test_fit_takes_a_tensorflow_dataset(tmp_path: Path) -> None:
    import tensorflow as tf

    from shardkeep.adapters.tensorflow import to_dataset

    loader = make_loader(write_shards(tmp_path))
    pairs = to_dataset(loader, lambda batch: (batch["x"], batch["x"], tf.cast(batch["valid"], tf.float32)))
    judge(fit(pairs), [loader.receipt()])
    assert loader.epoch == 3
