"""Fixtures for the tests of `pack`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.packing import image


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    for name, count in (("dog", 3), ("Cat", 2), ("eel", 0)):
        (folder / name / "deep").mkdir(parents=True)
        for i in range(count):
            kind = "JPEG" if i % 2 else "PNG"
            (folder / name / ("deep" if i else "") / f"{i}.x").write_bytes(image(kind, seed=i))
    (folder / ".DS_Store").write_bytes(b"?")
    return folder
