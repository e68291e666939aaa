"""Workers of a torch DataLoader over an `IterableDataset` of Hugging Face."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
distributed = pytest.importorskip("datasets.distributed")

from shardkeep.adapters.huggingface import to_iterable_dataset  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, make_loader, write_shards  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("workers", [0, 2, 5])
def test_nodes_and_workers_together_deliver_every_record_once(
    tmp_path: Path, workers: int, nodes: int
) -> None:
    loader = make_loader(write_shards(tmp_path))
    dataset = to_iterable_dataset(loader, parts=8).with_format("torch")
    for epoch in range(2):
        loader.set_epoch(epoch)
        seen = []
        for node in range(nodes):
            part = distributed.split_dataset_by_node(dataset, node, nodes) if nodes > 1 else dataset
            for batch in torch.utils.data.DataLoader(part, batch_size=10, num_workers=workers):
                seen += batch["x"].tolist()
        assert sorted(seen) == list(range(RECORDS))
