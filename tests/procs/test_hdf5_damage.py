"""One damaged byte anywhere in an HDF5 file: every call ends, with an error of the tree if with any."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.damaged_hdf5 import Reading, single_bytes
from tests.hdf5_makers import MAKERS, make

CALLS = ["open", "read", "info", "cat", "verify", "merge"]


def faults(kind: str, folder: Path, seed: str, count: int) -> list[str]:
    """Damage a file of a kind in many ways; return what went wrong."""
    path = make(kind, folder / kind)
    calls = [*CALLS, "resume"] if kind == "segment" else CALLS
    found: list[str] = []
    with Reading(path) as reading:
        for place in single_bytes(path.read_bytes(), f"{kind} {seed}", count):
            for call, outcome, text in reading.outcomes([place], calls):
                if outcome not in ("ok", "error"):
                    found.append(f"{kind} with byte {place[0]} = {place[1]}: {call} {outcome}: {text}")
    return found


@pytest.mark.parametrize("kind", MAKERS)
def test_one_damaged_byte(kind: str, tmp_path: Path) -> None:
    assert faults(kind, tmp_path, "few", 10) == []


def test_the_length_of_a_text_in_a_heap(tmp_path: Path) -> None:
    """With 0 the next heads are wrong, and HDF5 loops forever at one of a free part of size 0."""
    path = make("collected", tmp_path / "collected")
    place = path.read_bytes().index(b"GCOL") + 24
    with Reading(path) as reading:
        assert {outcome for _, outcome, _ in reading.outcomes([(place, 0)], CALLS)} <= {"ok", "error"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", MAKERS)
def test_many_damaged_bytes(kind: str, seed: int, tmp_path: Path) -> None:
    assert faults(kind, tmp_path, f"many {seed}", 500) == []
