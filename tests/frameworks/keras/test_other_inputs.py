"""The datasets of the torch and TensorFlow adapters in `fit`, for back ends that take them.

Covers `shardkeep.adapters.short_epoch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

keras = pytest.importorskip("keras")

import shardkeep as sk  # noqa: E402
from tests.frameworks.exactly_once import judge, make_loader, rows, write_shards  # noqa: E402
from tests.frameworks.keras.counting import Passes, counting_model  # noqa: E402

# TensorFlow and torch of NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

BACKEND = keras.backend.backend()


def fit(data: Any, built: bool = True, **options: Any) -> list[list[int]]:
    passes = Passes()
    model = counting_model(built)
    model.fit(data, epochs=3, callbacks=[passes], shuffle=False, verbose=0, **options)
    return passes.records


def pairs(loader: sk.Loader) -> Any:
    """Return torch's DataLoader with the pairs and weights that Keras takes."""
    from shardkeep.adapters.torch import DataLoader

    class Pairs(DataLoader):
        def __iter__(self) -> Iterator[Any]:
            return ((batch["x"], batch["x"], batch["valid"].float()) for batch in super().__iter__())

    return Pairs(loader)


@pytest.mark.skipif(BACKEND != "torch", reason="needs torch")
def test_fit_takes_a_torch_dataloader_that_makes_pairs(tmp_path: Path) -> None:
    loader = make_loader(write_shards(tmp_path))
    judge(fit(pairs(loader)), [loader.receipt()])
    assert loader.epoch == 3


@pytest.mark.skipif(BACKEND != "torch", reason="needs torch")
def test_fit_trains_whole_epochs_after_a_resumed_one_of_a_torch_dataloader(tmp_path: Path) -> None:
    paths = write_shards(tmp_path)
    first, loader = make_loader(paths), make_loader(paths)
    seen = [row for _, batch in zip(range(3), first, strict=False) for row in rows(batch)]
    loader.load_state_dict(first.state_dict())
    passes = fit(pairs(loader))
    judge([seen + passes[0], *passes[1:]], [first.receipt(), loader.receipt()])
    assert loader.epoch == 3


@pytest.mark.skipif(BACKEND != "torch", reason="needs torch")
@pytest.mark.parametrize("built", [False, True])
def test_fit_counts_the_steps_of_a_torch_dataloader_without_an_end(tmp_path: Path, built: bool) -> None:
    loader = make_loader(write_shards(tmp_path), epochs=None)
    judge(fit(pairs(loader), built, steps_per_epoch=loader.steps_per_epoch), [loader.receipt()])
    assert (loader.epoch, loader.position) == (3, 0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="needs TensorFlow")
def test_fit_takes_a_tensorflow_dataset(tmp_path: Path) -> None:
    import tensorflow as tf

    from shardkeep.adapters.tensorflow import to_dataset

    loader = make_loader(write_shards(tmp_path))
    data = to_dataset(loader, lambda batch: (batch["x"], batch["x"], tf.cast(batch["valid"], tf.float32)))
    judge(fit(data), [loader.receipt()])
    assert loader.epoch == 3
