from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardkeep.demo import checkpoint
from shardkeep.demo.checkpoint import Checkpoint


def sample(step: int) -> Checkpoint:
    return Checkpoint(
        step, {"epoch": 1, "position": 640}, np.arange(5, dtype=np.float32), np.full(5, 0.5, np.float32)
    )


def test_loaded_checkpoint_equals_the_published_one(tmp_path: Path) -> None:
    checkpoint.publish(tmp_path / "c.npz", sample(30))
    back = checkpoint.load(tmp_path / "c.npz")
    assert (back.step, back.loader_state) == (30, {"epoch": 1, "position": 640})
    assert back.parameters.tolist() == [0, 1, 2, 3, 4]
    assert back.velocity.dtype == np.float32
    assert back.velocity.tolist() == [0.5] * 5


def test_second_checkpoint_replaces_the_first(tmp_path: Path) -> None:
    for step in (5, 10):
        checkpoint.publish(tmp_path / "c.npz", sample(step))
    assert checkpoint.load(tmp_path / "c.npz").step == 10
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]


def test_failed_publish_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.publish(tmp_path / "c.npz", sample(5))

    def half(file: object, **_arrays: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise RuntimeError("the power went")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(RuntimeError, match="power"):
        checkpoint.publish(tmp_path / "c.npz", sample(10))
    assert checkpoint.load(tmp_path / "c.npz").step == 5
    assert [file.name for file in tmp_path.iterdir()] == ["c.npz"]
