"""Lightning Fabric with two processes: `setup_dataloaders` keeps the division, and a checkpoint the place.

Covers `shardkeep.adapters.torch.data_loader`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
fabric = pytest.importorskip("lightning.fabric")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader, ShardkeepDataset  # noqa: E402
from tests.frameworks.exactly_once import judge, rows, write_shards  # noqa: E402
from tests.frameworks.ranks import run_ranks  # noqa: E402


def test_two_ranks_deliver_each_record_once_also_after_a_resume(tmp_path: Path) -> None:
    write_shards(tmp_path)
    codes, printed = run_ranks(__name__, 2, tmp_path)
    assert codes == [0, 0], printed
    ranks = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    judge([ranks[0]["rows"] + ranks[1]["rows"]], [one for rank in ranks for one in rank["receipts"]])
    assert sorted(ranks[0]["plain"] + ranks[1]["plain"]) == sorted(ranks[0]["rows"] + ranks[1]["rows"])


def main(folder: str) -> None:
    launched = fabric.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    launched.launch()
    loaders = [
        sk.Loader(f"{folder}/*.tfrecord", {"x": sk.FixedLen()}, 16, shuffle="global") for _ in range(3)
    ]
    assert loaders[0].world.size == 2
    seen = []
    first, later = DataLoader(loaders[0]), DataLoader(loaders[1])
    for batch in launched.setup_dataloaders(first):
        seen += rows(batch)
        if loaders[0].step == 3:
            break
    launched.save(f"{folder}/checkpoint", {"batches": first})
    launched.load(f"{folder}/checkpoint", {"batches": later})
    seen += [row for batch in launched.setup_dataloaders(later) for row in rows(batch)]
    plain = torch.utils.data.DataLoader(ShardkeepDataset(loaders[2]), batch_size=None)
    answer = {
        "rows": seen,
        "receipts": [loader.receipt() for loader in loaders[:2]],
        "plain": [row for batch in launched.setup_dataloaders(plain) for row in rows(batch)],
    }
    Path(folder, f"{launched.global_rank}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
