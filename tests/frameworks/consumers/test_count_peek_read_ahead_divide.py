"""Frameworks that count, peek, read ahead or divide: each record once in each epoch, with the audit as judge.

Every way in which a framework lost or repeated records of a bare loader is a row; `docs/design/frameworks.md`
has their list. A case is a training with one framework, or one that has to be refused. An environment
runs the cases of the frameworks that it has; with KERAS_BACKEND, those of Keras.

Covers `shardkeep.adapters.passes`, `shardkeep.adapters.short_epoch`, `shardkeep.adapters.torch.lightning` and
`shardkeep.loader.callers`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import shardkeep as sk
from tests.frameworks.consumers.stories import Answer
from tests.frameworks.exactly_once import judge

MODULES = {
    "shardkeep": "loader_cases",
    "torch": "torch_cases",
    "lightning": "lightning_cases",
    "accelerate": "accelerate_cases",
    "tensorflow": "tensorflow_cases session_cases server_cases",
    "grain": "grain_cases",
    "jax": "jax_cases",
    "ray": "ray_cases",
}
"""The modules with the cases of a framework, by its name."""

if "KERAS_BACKEND" in os.environ:
    MODULES = {"keras": "keras_cases"}

CASES = [
    one
    for framework, modules in MODULES.items()
    if find_spec(framework)
    for module in modules.split()
    for one in import_module(f"tests.frameworks.consumers.{module}").CASES
]


pytestmark = [
    # More workers than processors.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # Keras, of the default of `fit`, and with TensorFlow and torch of NumPy 2.
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning"),
    # What a framework says of itself.
    pytest.mark.filterwarnings("ignore::UserWarning:(ray|transformers|lightning)"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _workers_have_ended() -> Iterator[None]:
    """Wait for workers, which end with the last reference to their iterator: a traceback has one."""
    yield
    gc.collect()
    for child in multiprocessing.active_children():
        child.join(20)


@pytest.mark.parametrize(("train", "refusal"), CASES)
def test_a_framework_that(train: Callable[[Path], Answer], refusal: str, tmp_path: Path) -> None:
    if refusal:
        with pytest.raises(sk.errors.ShardkeepError, match=refusal):
            train(tmp_path)
    else:
        judge(*train(tmp_path))
