"""accelerate, and the Trainer of Hugging Face on it: they divide batches, and skip what was counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import accelerate
import torch
import transformers

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader, ShardkeepDataset
from tests.frameworks.consumers.programs import accelerate_run
from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.consumers.torch_cases import Plain
from tests.frameworks.exactly_once import make_loader, rows, write_shards
from tests.frameworks.ranks import run_ranks

PER_EPOCH = 14

# -- accelerate ----------------------------------------------------------------------------------------------


def loaders_that_were_prepared(folder: Path) -> Answer:
    """Pass the loaders of two ranks through `prepare`, which leaves them as they are."""
    paths, accelerator = write_shards(folder), accelerate.Accelerator(cpu=True)
    loaders = [make_loader(paths, rank, 2) for rank in range(2)]
    prepared = [accelerator.prepare(loader) for loader in loaders]
    return [[row for one in prepared for batch in one for row in rows(batch)]], [
        loader.receipt() for loader in loaders
    ]


def dataloader_that_is_prepared(folder: Path) -> Answer:
    accelerate.Accelerator(cpu=True).prepare(DataLoader(make_loader(write_shards(folder))))
    raise AssertionError


def dataset_that_is_prepared(dataset: Any, workers: int, method: str | None, folder: Path) -> Answer:
    plain = torch.utils.data.DataLoader(
        dataset(make_loader(write_shards(folder), 0, 2)),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=method,
    )
    next(iter(accelerate.Accelerator(cpu=True).prepare(plain)))
    raise AssertionError


def two_ranks_and_then_one(folder: Path) -> Answer:
    """Train two ranks up to a checkpoint, and one rank from there."""
    write_shards(folder)
    codes, printed = run_ranks(accelerate_run.__name__, 2, "train", folder)
    assert codes == [0, 0], printed
    accelerate_run.train(str(folder))
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    passes = [[row for run in runs for row in run["rows"][epoch]] for epoch in range(accelerate_run.EPOCHS)]
    return passes, [run["receipt"] for run in runs]


def two_ranks_that_divide_again(folder: Path) -> Answer:
    write_shards(folder)
    codes, printed = run_ranks(accelerate_run.__name__, 2, "divide", folder)
    assert 0 not in codes
    raise sk.PlanError(printed)


# -- Trainer -------------------------------------------------------------------------------------------------


class Model(torch.nn.Module):
    """A model that notes the records of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, x: Any, valid: Any) -> Any:
        self.seen.append(rows({"x": x, "valid": valid}))
        return {"loss": self.layer(x.float()[:, None]).mean() * 0}


class Trainer(transformers.Trainer):
    """Trainer of two epochs over a DataLoader of a loader."""

    def __init__(self, batches: DataLoader, folder: Path, **options: Any) -> None:
        arguments = transformers.TrainingArguments(
            f"{folder}/run",
            num_train_epochs=2,
            save_strategy="steps",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            **options,
        )
        self.batches = batches
        super().__init__(Model(), arguments, callbacks=[SaveState(batches)])

    def get_train_dataloader(self) -> DataLoader:
        return self.batches


class SaveState(transformers.TrainerCallback):
    """Keeps state and receipt with each checkpoint."""

    def __init__(self, batches: DataLoader) -> None:
        self.batches = batches

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        path = Path(args.output_dir, f"checkpoint-{state.global_step}", "loader.json")
        path.write_text(
            json.dumps({"state": self.batches.state_dict(), "receipt": self.batches.loader.receipt()})
        )


def trainer_with_the_state(accumulated: int, saved: int, folder: Path) -> Answer:
    """Train two epochs, and again from a checkpoint."""
    paths = write_shards(folder)
    options = {"gradient_accumulation_steps": accumulated, "save_steps": saved, "ignore_data_skip": True}
    first = Trainer(DataLoader(make_loader(paths)), folder, **options)
    first.train()
    later = Trainer(DataLoader(make_loader(paths)), folder, **options)
    checkpoint = folder / f"run/checkpoint-{saved}"
    content = json.loads((checkpoint / "loader.json").read_text())
    later.batches.load_state_dict(content["state"])
    later.train(resume_from_checkpoint=str(checkpoint))
    assert len(first.model.seen) == 2 * PER_EPOCH
    # The last group of the resumed epoch has 2 of 3 batches: its gradient is added to the next step.
    assert later.state.global_step == first.state.global_step - (PER_EPOCH % accumulated > 0)
    steps = first.model.seen[: saved * accumulated] + later.model.seen
    passes = [[row for step in part for row in step] for part in (steps[:PER_EPOCH], steps[PER_EPOCH:])]
    return passes, [content["receipt"], later.batches.loader.receipt()]


def trainer_that_skips(folder: Path) -> Answer:
    paths = write_shards(folder)
    Trainer(DataLoader(make_loader(paths)), folder, save_steps=9).train()
    later = Trainer(DataLoader(make_loader(paths)), folder)
    later.train(resume_from_checkpoint=f"{folder}/run/checkpoint-9")
    raise AssertionError


def worker_that_skips(method: str, folder: Path) -> Answer:
    batches = DataLoader(make_loader(write_shards(folder)), 1, multiprocessing_context=method)
    next(iter(accelerate.skip_first_batches(batches, 2)))
    raise AssertionError


DIVIDES, SKIPS = "divides again", "skips what was counted"
CASES = [
    case(DIVIDES, "accelerate leaves a Loader", loaders_that_were_prepared),
    case(
        DIVIDES,
        "accelerate, torch DataLoader",
        dataloader_that_is_prepared,
        refusal="do not pass this DataLoad",
    ),
    *(
        case(
            DIVIDES,
            f"accelerate, {one.__name__}, {n} {method}",
            dataset_that_is_prepared,
            one,
            n,
            method,
            refusal=r"prepare\(\)|each would deliver every record",
        )
        for one, n, method in [
            *((one, *how) for one in (Plain, ShardkeepDataset) for how in ((0, None), (1, "fork"))),
            (ShardkeepDataset, 1, "spawn"),
        ]
    ),
    case(
        DIVIDES,
        "accelerate on two ranks",
        two_ranks_that_divide_again,
        refusal=r"PlanError: accelerate's prepare\(\) would divide the batches of rank 0 of 2",
    ),
    case("resumes as one rank", "accelerate", two_ranks_and_then_one),
    *(
        case(SKIPS, f"Trainer with the state of step {step}, groups of {n}", trainer_with_the_state, n, step)
        for n, step in ((1, 9), (1, 14), (3, 4))
    ),
    *(
        case(SKIPS, name, *run, refusal="ignore_data_skip=True")
        for name, *run in (
            ("Trainer", trainer_that_skips),
            ("accelerate, a worker, fork", worker_that_skips, "fork"),
            ("accelerate, a worker, spawn", worker_that_skips, "spawn"),
        )
    ),
]
