"""Trainings and predictions with Keras that are killed by SIGKILL, and resumed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

import shardkeep as sk
from tests.frameworks.exactly_once import RECORDS, write_shards
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_training_that_is_killed_anywhere_trains_every_record_once_per_epoch(tmp_path: Path) -> None:
    write_shards(tmp_path)
    # Epochs of 14 batches: in the middle of one, while a backup is written, and after its last batch.
    for where, number in (("batch", 7), ("save", 2), ("epoch", 1), ("save", 1), ("batch", 14)):
        killed = run("-m", "tests.frameworks.keras.fit_child", str(tmp_path), where, str(number))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = run("-m", "tests.frameworks.keras.fit_child", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4.0"] * RECORDS
    sk.hdf5.merge(tmp_path / "run", tmp_path / "merged.h5")
    with sk.hdf5.open(tmp_path / "merged.h5") as merged:
        assert merged["logs/epoch"][:].tolist() == [0, 1, 2, 3]
    assert sk.plan.audit(sk.hdf5.receipts(tmp_path / "merged.h5"), epochs=range(4)).ok


def test_the_example_runs() -> None:
    done = run("examples/train_keras.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "each record was trained on once in each epoch, and predicted once"
