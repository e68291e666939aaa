"""The spill file of a killed client, and the batches of it that the next client takes over.

Covers `shardkeep.collector.client.buffers`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep.collector.client.buffers import Payload
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.spill import SpillFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with three batches that no process has open."""
    spill = SpillFile(str(tmp_path), bytes(16), 0)
    outbox = Outbox(1)
    outbox.use_spill(spill)
    for number in range(3):
        outbox.add([Payload("x", 1, bytes([number]) * 100)])
    spill.close()
    return Path(spill.path)


def _left(path: Path) -> list[int]:
    spill = SpillFile(str(path.parent), bytes(16), 0)
    assert spill.path == str(path)
    rows = [int(spill.read(one)[0].data[0]) for one in spill.left]
    spill.close()
    return rows


def test_every_complete_batch_is_taken_over(path: Path) -> None:
    assert _left(path) == _left(path) == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 50, 130])
def test_an_incomplete_batch_is_removed_without_a_warning(path: Path, cut: int) -> None:
    whole = path.stat().st_size
    os.truncate(path, whole - cut)
    assert _left(path) == [0, 1]
    assert path.stat().st_size == whole - (whole - 32) // 3, (
        "or it would be taken for damage after the next rows"
    )
    assert os.listdir(path.parent) == [path.name]


def test_a_damaged_batch_is_reported_and_kept(path: Path) -> None:
    before = path.read_bytes()
    at = before.index(b"\1" * 100)
    damaged = before[:at] + b"\7" + before[at + 1 :]
    path.write_bytes(damaged)
    with pytest.warns(RuntimeWarning, match=r"is damaged at byte \d+: \d+ bytes of rows from there on are"):
        assert _left(path) == [0]
    (kept,) = path.parent.glob("*.damaged")
    assert kept.read_bytes()[32:] == damaged[32:]
    assert _left(path) == [0], "it is reported once"
