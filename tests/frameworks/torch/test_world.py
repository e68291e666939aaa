"""Ranks of real process groups of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.world import World

torch = pytest.importorskip("torch")


def _rank(rank: int, size: int, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    world = World.detect()
    dist.barrier()
    dist.destroy_process_group()
    Path(folder, str(rank)).write_text(
        f"{world.source} {world.rank} {world.size} {world.local_rank} {world.local_size}"
    )


def test_group_made_by_hand_is_detected_with_its_local_size(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_rank, (2, str(tmp_path)), nprocs=2)
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == [
        "torch.distributed 0 2 0 2",
        "torch.distributed 1 2 1 2",
    ]
