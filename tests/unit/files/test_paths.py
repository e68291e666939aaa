from __future__ import annotations

from pathlib import Path

import pytest

from shardkeep.errors import NotFoundError
from shardkeep.files.paths import expand


def test_sidecars_are_not_data_files(tmp_path: Path) -> None:
    for name in ("train-0", "train-0.skidx", "train-1", "train-1.lock"):
        (tmp_path / name).touch()
    assert expand(f"{tmp_path}/train*") == [f"{tmp_path}/train-0", f"{tmp_path}/train-1"]
    assert expand(f"{tmp_path}/*.skidx") == [f"{tmp_path}/train-0.skidx"]
    assert expand(tmp_path / "train-0.skidx") == [f"{tmp_path}/train-0.skidx"]
    with pytest.raises(NotFoundError):
        expand(f"{tmp_path}/*.sk*x*")
