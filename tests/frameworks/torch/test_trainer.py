"""Hugging Face's Trainer, resumed from its checkpoint with the state of the loader.

Covers `shardkeep.adapters.torch.data_loader` and `shardkeep.loader.callers`.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader  # noqa: E402
from tests.frameworks.exactly_once import judge, make_loader, rows, write_shards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:transformers", "ignore::FutureWarning")

EPOCHS = 2
PER_EPOCH = 14


class Model(torch.nn.Module):  # type: ignore[misc]
    """A model that notes the records of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, x: Any, valid: Any) -> Any:
        self.seen.append(rows({"x": x, "valid": valid}))
        return {"loss": self.layer(x.float()[:, None]).mean() * 0}


class Trainer(transformers.Trainer):  # type: ignore[misc]
    def __init__(self, batches: DataLoader, folder: Path, **options: Any) -> None:
        arguments = transformers.TrainingArguments(
            str(folder), num_train_epochs=EPOCHS, report_to=[], disable_tqdm=True, use_cpu=True, **options
        )
        self.batches = batches
        super().__init__(Model(), arguments, callbacks=[SaveState(batches)])

    def get_train_dataloader(self) -> DataLoader:
        return self.batches


class SaveState(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, batches: DataLoader) -> None:
        self.batches = batches

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = Path(args.output_dir, f"checkpoint-{state.global_step}", "loader.json")
        path.write_text(
            json.dumps({"state": self.batches.state_dict(), "receipt": self.batches.loader.receipt()})
        )


@pytest.mark.parametrize(("accumulated", "saved"), [(1, 9), (1, 14), (3, 4)])
def test_a_run_resumes_with_the_state_of_its_checkpoint(tmp_path: Path, accumulated: int, saved: int) -> None:
    paths = write_shards(tmp_path)
    options = {
        "gradient_accumulation_steps": accumulated,
        "save_steps": saved,
        "save_strategy": "steps",
        "ignore_data_skip": True,
    }
    first = Trainer(DataLoader(make_loader(paths)), tmp_path / "run", **options)
    first.train()
    loader = make_loader(paths)
    later = Trainer(DataLoader(loader), tmp_path / "run", **options)
    checkpoint = tmp_path / f"run/checkpoint-{saved}"
    content = json.loads((checkpoint / "loader.json").read_text())
    later.batches.load_state_dict(content["state"])
    later.train(resume_from_checkpoint=str(checkpoint))
    made = saved * accumulated
    assert len(first.model.seen) == EPOCHS * PER_EPOCH
    steps = first.model.seen[:made] + later.model.seen
    passes = [[row for step in part for row in step] for part in (steps[:PER_EPOCH], steps[PER_EPOCH:])]
    judge(passes, [content["receipt"], loader.receipt()])
    # The last group of the resumed epoch has 2 of 3 batches: its gradient is added to the next step.
    assert later.state.global_step == first.state.global_step - (PER_EPOCH % accumulated > 0)


def test_a_resume_that_would_skip_batches_is_refused(tmp_path: Path) -> None:
    paths = write_shards(tmp_path)
    Trainer(DataLoader(make_loader(paths)), tmp_path / "run", save_steps=9, save_strategy="steps").train()
    later = Trainer(DataLoader(make_loader(paths)), tmp_path / "run")
    with pytest.raises(sk.PlanError, match="ignore_data_skip=True"):
        later.train(resume_from_checkpoint=str(tmp_path / "run/checkpoint-9"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_that_would_skip_batches_is_refused(tmp_path: Path, method: str) -> None:
    batches = DataLoader(make_loader(write_shards(tmp_path)), 1, multiprocessing_context=method)
    skipping = accelerate.skip_first_batches(batches, 2)
    with pytest.raises(sk.PlanError, match="ignore_data_skip=True") as caught:
        next(iter(skipping))
    # The traceback has the iterator, which ends its workers with its last reference.
    del caught, skipping
    gc.collect()
    for worker in multiprocessing.active_children():
        worker.join()
