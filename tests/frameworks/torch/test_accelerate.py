"""accelerate with two processes: what it would divide again is refused, and the rest is exact by the audit.

Covers `shardkeep.adapters.torch.data_loader` and `shardkeep.loader.callers`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
accelerate = pytest.importorskip("accelerate")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader, ShardkeepDataset  # noqa: E402
from tests.frameworks.exactly_once import judge, rows, write_shards  # noqa: E402
from tests.frameworks.ranks import run_ranks  # noqa: E402

EPOCHS = 2
STOP = 3
"""Number of steps before the checkpoint."""


def test_a_checkpoint_of_two_ranks_resumes_on_one(tmp_path: Path) -> None:
    write_shards(tmp_path)
    codes, printed = run_ranks(__name__, 2, "train", tmp_path)
    assert codes == [0, 0], printed
    train(str(tmp_path))
    runs = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    passes = [[row for run in runs for row in run["rows"][epoch]] for epoch in range(EPOCHS)]
    judge(passes, [run["receipt"] for run in runs])


def test_a_dataset_that_prepare_divides_again_is_refused(tmp_path: Path) -> None:
    write_shards(tmp_path)
    codes, printed = run_ranks(__name__, 2, "divide", tmp_path)
    assert 0 not in codes
    assert "PlanError: accelerate's prepare() would divide the batches of rank 0 of 2" in printed


def make_loader(folder: str) -> sk.Loader:
    return sk.Loader(f"{folder}/*.tfrecord", {"x": sk.FixedLen()}, 16, shuffle="global")


def train(folder: str) -> None:
    """Train up to the checkpoint on two ranks, and from it to the end on one."""
    accelerator = accelerate.Accelerator(cpu=True)
    loader = make_loader(folder)
    batches = DataLoader(loader)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.register_for_checkpointing(batches)
    checkpoint = Path(folder, "checkpoint")
    if checkpoint.exists():
        accelerator.load_state(str(checkpoint))
    seen: list[list[int]] = [[] for _ in range(EPOCHS)]
    steps, stop = 0, STOP if loader.world.size == 2 else -1
    while loader.epoch < EPOCHS and steps != stop:
        epoch = loader.epoch
        for batch in batches:
            accelerator.backward(model(batch["x"].float()[:, None]).mean() * 0)
            optimizer.step()
            seen[epoch] += rows(batch)
            steps += 1
            if steps == stop:
                accelerator.save_state(str(checkpoint))
                break
    answer = {"rows": seen, "receipt": loader.receipt()}
    Path(folder, f"{loader.world.size}-{loader.world.rank}.json").write_text(json.dumps(answer))
    accelerator.end_training()


def divide_again(folder: str) -> None:
    """Iterate a plain DataLoader that `prepare` divides."""
    accelerator = accelerate.Accelerator(cpu=True)
    plain = torch.utils.data.DataLoader(ShardkeepDataset(make_loader(folder)), batch_size=None)
    next(iter(accelerator.prepare(plain)))


if __name__ == "__main__":
    task, folder = sys.argv[1:]
    train(folder) if task == "train" else divide_again(folder)
