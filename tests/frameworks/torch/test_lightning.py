"""Runs of Lightning's Trainer: resume in mid-epoch and at its end, on another number of devices.

Covers `shardkeep.adapters.torch.lightning`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pl = pytest.importorskip("lightning.pytorch")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader  # noqa: E402
from tests.frameworks.exactly_once import judge, make_loader, rows, write_shards  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
RUN = Path(__file__).with_name("lightning_run.py")
STEP = 4
"""Step of the checkpoint from the middle of an epoch."""


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder)
    return str(folder / "*.tfrecord")


@pytest.fixture(scope="module")
def first_runs(shards: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Return the folder of a run of one epoch, by its number of devices."""
    folders = {devices: tmp_path_factory.mktemp(f"first{devices}") for devices in (1, 2)}
    for devices, folder in folders.items():
        run(shards, folder, devices, epochs=1)
    return folders


def run(shards: str, folder: Path, devices: int, epochs: int, checkpoint: str | Path = "") -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(
        [sys.executable, str(RUN), shards, str(folder), str(devices), str(epochs), str(checkpoint)],
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


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (2, 1)])
def test_a_checkpoint_from_the_middle_of_an_epoch_resumes(
    shards: str, first_runs: dict[int, Path], tmp_path: Path, before: int, after: int
) -> None:
    first = first_runs[before]
    run(shards, tmp_path, after, epochs=2, checkpoint=first / f"step={STEP}.ckpt")
    earlier, later = trained(first, steps=STEP), trained(tmp_path)
    judge(
        [earlier[epoch] + later[epoch] for epoch in (0, 1)],
        receipts(first, f"step{STEP}") + receipts(tmp_path, "end"),
    )


def test_a_checkpoint_from_the_end_of_an_epoch_is_followed_by_the_next(
    shards: str, first_runs: dict[int, Path], tmp_path: Path
) -> None:
    run(shards, tmp_path, 1, epochs=2, checkpoint=first_runs[1] / "end-epoch=0.ckpt")
    earlier, later = trained(first_runs[1]), trained(tmp_path)
    judge([earlier[0], later[1]], receipts(first_runs[1], "end") + receipts(tmp_path, "end"))


class Model(pl.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.trained: list[list[int]] = []
        self.validated: list[list[int]] = []

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


def trainer(folder: Path, **options: Any) -> Any:
    return pl.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


@pytest.mark.filterwarnings("ignore")
def test_validation_begins_again_after_the_sanity_check(shards: str, tmp_path: Path) -> None:
    model, training, validation = Model(), make_loader([shards]), make_loader([shards])
    trainer(tmp_path, max_epochs=2).fit(model, DataLoader(training), DataLoader(validation))
    judge(model.trained, [training.receipt()])
    judge(model.validated[1:], [validation.receipt()])  # the first has two batches, to find errors early


@pytest.mark.filterwarnings("ignore")
def test_a_loader_itself_is_refused(shards: str, tmp_path: Path) -> None:
    with pytest.raises(sk.PlanError, match=r"pass shardkeep\.adapters\.torch\.DataLoader\(loader\)"):
        trainer(tmp_path, max_epochs=1).fit(Model(), make_loader([shards]))


@pytest.mark.filterwarnings("ignore")
def test_a_loader_without_an_end_is_refused(shards: str, tmp_path: Path) -> None:
    with pytest.raises(sk.PlanError, match="epochs=1 in the Loader"):
        trainer(tmp_path, max_steps=3).fit(Model(), DataLoader(make_loader([shards], epochs=None)))


@pytest.mark.filterwarnings("ignore")
def test_a_loader_in_the_code_of_a_model_is_not_refused(shards: str, tmp_path: Path) -> None:
    class Checked(Model):
        def on_train_epoch_end(self) -> None:
            self.checked = [row for batch in make_loader([shards]) for row in rows(batch)]

    model, loader = Checked(), make_loader([shards])
    trainer(tmp_path, max_epochs=1).fit(model, DataLoader(loader))
    judge([*model.trained, model.checked], [loader.receipt()])
