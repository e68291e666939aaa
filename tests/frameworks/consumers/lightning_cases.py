"""Lightning's Trainer: it peeks to validate, counts the batches of an epoch, and resumes by its own count."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from shardkeep.adapters.torch import DataLoader
from tests.frameworks.consumers.drivers import Passes
from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.exactly_once import make_loader, rows, write_shards
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
RUN = Path(__file__).with_name("programs") / "lightning_run.py"
STEP = 4
"""Step of the checkpoint from the middle of an epoch."""

# -- programs ------------------------------------------------------------------------------------------------


def run(shards: Path, folder: Path, devices: int, epochs: int, checkpoint: str = "") -> None:
    folder.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    arguments = f"{shards}/*.tfrecord", str(folder), str(devices), str(epochs), checkpoint
    done = subprocess.run(
        [sys.executable, str(RUN), *arguments],
        env={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def trained(folder: Path, steps: float = float("inf")) -> dict[int, list[int]]:
    """Return the rows that all ranks trained on before a step, by epoch."""
    found: dict[int, list[int]] = defaultdict(list)
    for path in folder.glob("rows.*"):
        for line in path.read_text().splitlines():
            epoch, step, *numbers = map(int, line.split())
            if step < steps:
                found[epoch] += numbers
    return found


def receipts(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.glob(f"receipt.{name}.*")]


@cache
def first_run(devices: int) -> Path:
    """Train one epoch; return the folder of shards and of the run."""
    folder = Path(tempfile.mkdtemp())
    write_shards(folder)
    run(folder, folder / "run", devices, 1)
    return folder


def resumed(before: int, after: int, folder: Path) -> Answer:
    """Train on another number of devices, from the checkpoint in the middle of an epoch."""
    shards = first_run(before)
    first = shards / "run"
    run(shards, folder / "run", after, 2, f"{first}/step={STEP}.ckpt")
    earlier, later = trained(first, STEP), trained(folder / "run")
    passes = [earlier[epoch] + later[epoch] for epoch in (0, 1)]
    return passes, receipts(first, f"step{STEP}") + receipts(folder / "run", "end")


def resumed_at_the_end(folder: Path) -> Answer:
    """Train the next epoch from the checkpoint at the end of one."""
    shards = first_run(1)
    first = shards / "run"
    run(shards, folder / "run", 1, 2, f"{first}/end-epoch=0.ckpt")
    return [trained(first)[0], trained(folder / "run")[1]], receipts(first, "end") + receipts(
        folder / "run", "end"
    )


# -- in this process -----------------------------------------------------------------------------------------


class Model(pl.LightningModule):
    """A model that keeps the records of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained: Passes = []
        self.validated: Passes = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.trained[-1] += rows(batch)
        return self.layer(torch.as_tensor(batch["x"]).float()[:, None]).mean() * 0

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated[-1] += rows(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


class Checked(Model):
    """A model that iterates over a loader itself."""

    def on_train_epoch_end(self) -> None:
        self.trained.append([row for batch in make_loader(self.paths) for row in rows(batch)])


def fit(model: Model, folder: Path, *data: Any, **options: Any) -> None:
    pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    ).fit(model, *data)


def trained_and(validated: bool, folder: Path) -> Answer:
    """Train two epochs, with a validation of each; the first has two batches, to find errors early."""
    paths, model = write_shards(folder), Model()
    training, validation = make_loader(paths), make_loader(paths)
    fit(model, folder, DataLoader(training), DataLoader(validation), max_epochs=2)
    if validated:
        return model.validated[1:], [validation.receipt()]
    return model.trained, [training.receipt()]


def with_a_loader_in_the_model(folder: Path) -> Answer:
    """Train an epoch with a model that has a loader for itself."""
    model = Checked()
    model.paths = write_shards(folder)
    loader = make_loader(model.paths)
    fit(model, folder, DataLoader(loader), max_epochs=1)
    return model.trained, [loader.receipt()]


def refused(wrap: Any, epochs: int | None, folder: Path) -> Answer:
    fit(Model(), folder, wrap(make_loader(write_shards(folder), epochs=epochs)), max_steps=3)
    raise AssertionError


QUIET = pytest.mark.filterwarnings("ignore")
CASES = [
    case("peeks", "Lightning, training", trained_and, False, marks=QUIET),
    case("peeks", "Lightning, validation", trained_and, True, marks=QUIET),
    case("iterates", "Lightning, a loader in the model", with_a_loader_in_the_model, marks=QUIET),
    *(
        case(
            "compares its count with the length",
            f"Lightning, {before} to {after} devices",
            resumed,
            before,
            after,
        )
        for before, after in ((1, 1), (1, 2), (2, 1))
    ),
    case("compares its count with the length", "Lightning at the end of an epoch", resumed_at_the_end),
    case(
        "compares its count with the length",
        "Lightning with a bare Loader",
        refused,
        lambda loader: loader,
        1,
        refusal=r"pass shardkeep\.adapters\.torch\.DataLoader\(loader\)",
        marks=QUIET,
    ),
    case(
        "reads ahead",
        "Lightning without an end",
        refused,
        DataLoader,
        None,
        refusal="epochs=1 in the Loader",
        marks=QUIET,
    ),
]
