"""The torch adapter in real DataLoaders: every start method, any number of workers, the audit as judge.

Covers `shardkeep.adapters.torch.data_loader` and `shardkeep.adapters.torch.dataset`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import DataLoader, RaggedTensors, ShardkeepDataset  # noqa: E402
from tests.frameworks.exactly_once import COUNTS, RECORDS, bare, make_loader, rows  # noqa: E402

# Torch warns of more workers than processors.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.mark.parametrize("persistent", [False, True])
def test_a_plain_dataloader_takes_the_dataset_with_set_epoch(paths: list[str], persistent: bool) -> None:
    dataset = ShardkeepDataset(make_loader(paths))
    batches = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=2, persistent_workers=persistent
    )
    passes = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        passes.append([rows(batch) for batch in batches])
    assert passes == bare(paths, 3)


# torch warns if a pass has more batches than the length that was asked for, also before an earlier pass.
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("plain", [True, False])
def test_the_length_is_that_of_a_whole_pass_also_before_the_rest_of_one(
    paths: list[str], plain: bool, workers: int
) -> None:
    loader = make_loader(paths, epochs=2)
    loader.load_state_dict({**loader.state_dict(), "position": 48})
    dataset = ShardkeepDataset(loader)
    batches = (
        torch.utils.data.DataLoader(
            dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
        )
        if plain
        else DataLoader(loader, workers)
    )
    expected = bare(paths, 4)
    assert len(batches) == 28
    assert [rows(batch) for batch in batches] == [*expected[0][3:], *expected[1]]
    if plain:
        dataset.set_epoch(2)
    assert [rows(batch) for batch in batches] == [*expected[2], *expected[3]]
    assert len(batches) == 28


@pytest.mark.parametrize("workers", [0, 2])
def test_files_are_divided_among_workers(paths: list[str], workers: int) -> None:
    loader = sk.Loader(
        paths, {"x": sk.FixedLen()}, 16, sk.World(0, 1), shard_by="files", shuffle="blocks", cycle_length=2
    )
    batches = DataLoader(loader, workers, persistent_workers=bool(workers))
    for _ in range(2):
        assert sorted(row for batch in batches for row in rows(batch)) == list(range(RECORDS))
    assert sk.plan.audit([loader.receipt()]).ok


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_and_ragged_rows_cross(paths: list[str], workers: int) -> None:
    features = {"s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}
    batches = DataLoader(sk.Loader(paths, features, 8, sk.World(0, 1)), workers)
    batch = next(iter(batches))
    assert batch["s"].tolist() == [b"s" * (i % 3) for i in range(8)]
    assert isinstance(batch["v"], RaggedTensors)
    assert [len(row) for row in batch["v"].nested().unbind()] == [1 + i % 4 for i in range(8)]


def test_damage_that_a_worker_skips_is_in_the_receipt(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tfrecord"
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    loader = make_loader([str(damaged)], on_corrupt="skip")
    assert sum(len(rows(batch)) for batch in DataLoader(loader, 2)) == COUNTS[3] - 1
    assert len(loader.receipt()["skipped"]) == 1


@pytest.mark.parametrize("option", [{"batch_size": 4}, {"shuffle": True}, {"in_order": False}])
def test_options_that_choose_samples_are_refused(paths: list[str], option: dict[str, Any]) -> None:
    with pytest.raises(sk.PlanError, match="come from the Loader"):
        DataLoader(make_loader(paths), **option)


def test_a_loader_without_an_end_has_no_length(paths: list[str]) -> None:
    loader = make_loader(paths, epochs=None)
    batches = DataLoader(loader)
    for sized in (batches, ShardkeepDataset(loader)):
        with pytest.raises(TypeError, match="epochs=None"):
            len(sized)
    assert not hasattr(batches.dataset, "__len__")  # Keras would ask for it
    assert [rows(batch) for _, batch in zip(range(20), batches, strict=False)]


def test_a_loader_that_was_moved_before_a_pass_begins_it_there_again(paths: list[str]) -> None:
    loader = make_loader(paths)
    batches = DataLoader(loader)
    loader.load_state_dict({**loader.state_dict(), "position": 48})
    next(iter(batches))
    assert [rows(batch) for batch in batches] == bare(paths, 1)[0][3:]
    next(iter(batches))
    loader.set_epoch(2)
    assert [rows(batch) for batch in batches] == bare(paths, 3)[2]


def test_a_run_without_an_end_that_is_left_begins_its_epoch_again(paths: list[str]) -> None:
    batches = DataLoader(make_loader(paths, epochs=None))
    steps = len(bare(paths, 1)[0])
    passes = [[rows(b) for _, b in zip(range(steps), batches, strict=False)] for _ in range(2)]
    assert passes == bare(paths, 2)
    assert [rows(b) for _, b in zip(range(3), batches, strict=False)] == bare(paths, 3)[2][:3]
    assert [rows(b) for _, b in zip(range(3), batches, strict=False)] == bare(paths, 3)[2][:3]
