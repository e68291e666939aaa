from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep.files.remote import requests, store
from tests.remote_memory import MEMORY


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(requests, "_FIRST_PAUSE_S", 0.001)
    yield tmp_path / "cache"
    if MEMORY.exists("/data"):
        MEMORY.rm("/data", recursive=True)
    store._listed.clear()
