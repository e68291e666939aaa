"""Keras on each back end: PyDataset, and the datasets of the torch adapter in `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import keras
import pytest

import shardkeep as sk
from shardkeep.adapters.keras import LoaderProgress, PyDataset
from tests.frameworks.consumers.drivers import Driver, Passes
from tests.frameworks.consumers.stories import Answer, case, endless, resumed, resumed_by_two, whole
from tests.frameworks.exactly_once import RECORDS, make_loader, write_shards
from tests.frameworks.keras import counting

BACKEND = keras.backend.backend()
STEPS = -(-RECORDS // 16)


class Stop(keras.callbacks.Callback):
    """Stops the training after a number of batches."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            self.model.stop_training = True


def numbered(loader: sk.Loader) -> tuple[Any, list[Any]]:
    """Return a dataset that Keras reads by number, and the callback that moves the loader."""
    data = PyDataset(loader, "x", "x")
    return data, [LoaderProgress(data)]


def torch_pairs(loader: sk.Loader) -> tuple[Any, list[Any]]:
    """Return torch's DataLoader with the pairs and weights that Keras takes."""
    from shardkeep.adapters.torch import DataLoader

    class Pairs(DataLoader):
        def __iter__(self) -> Iterator[Any]:
            return ((batch["x"], batch["x"], batch["valid"].float()) for batch in super().__iter__())

    return Pairs(loader), []


def fit(make: Any, built: bool = True, model: dict[str, Any] | None = None, **options: Any) -> Driver:
    """Return the driver of `fit`."""

    def train(loader: sk.Loader, epochs: int, stop: int | None = None) -> Passes:
        data, callbacks = make(loader)
        passes = counting.Passes()
        if stop:
            callbacks.append(Stop(stop))
        given = {"shuffle": False, "verbose": 0, **options}
        if loader.epochs is None:
            given["steps_per_epoch"] = loader.steps_per_epoch
        counting.counting_model(built, **(model or {})).fit(
            data, epochs=epochs, callbacks=[*callbacks, passes], **given
        )
        return passes.records

    return train


def by_half_epochs(folder: Path) -> Answer:
    """Train four times half of the steps, which are two epochs of the loader."""
    loader = make_loader(write_shards(folder))
    halves = fit(numbered, steps_per_epoch=STEPS // 2)(loader, 4)
    return [halves[0] + halves[1], halves[2] + halves[3]], [loader.receipt()]


# The model shows how often it was trained on a record, but no order.
counted = partial(whole, in_order=False)
counted_rest = partial(resumed, in_order=False)

ROW = "takes the length of a resumed epoch for all"
ERROR = pytest.mark.filterwarnings("error:Your input")
CASES = [
    *(  # 14 steps, 4, and one
        case("peeks", f"{built=}, batches of {size}", counted, fit(numbered, built), batch_size=size)
        for built in (False, True)
        for size in (16, 64, 256)
    ),
    *(
        case("iterates", f"remainder {one}", counted, fit(numbered), remainder=one, batch_size=15)
        for one in ("short", "drop")
    ),
    case("ends by count", "steps_per_epoch", counted, fit(numbered, steps_per_epoch=STEPS)),
    case("ends by count", "steps_per_epoch of half an epoch", by_half_epochs),
    *(
        case("makes steps at once", f"{n} of 14", counted, fit(numbered, model={"steps_per_execution": n}))
        for n in (4, STEPS, 100)
        if BACKEND != "torch"  # which Keras refuses
    ),
    case("shuffles", "PyDataset", counted, fit(numbered, shuffle=True), refusal="shuffle=False"),
    case(ROW, "PyDataset", counted_rest, fit(numbered), marks=ERROR),
    case("resumes as two ranks", "PyDataset", resumed_by_two, fit(numbered)),
]
if BACKEND == "torch":
    CASES += [
        case("peeks", "torch DataLoader", counted, fit(torch_pairs)),
        case(ROW, "torch DataLoader", counted_rest, fit(torch_pairs)),
        *(
            case(
                "ends by count",
                f"torch DataLoader without an end, {built=}",
                endless,
                fit(torch_pairs, built),
            )
            for built in (False, True)
        ),
    ]
