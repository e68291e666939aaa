"""The page and the example of TensorFlow, run as a reader would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.doc_pages import ROOT, run_steps, steps_of
from tests.waiting import PATIENCE_S


def test_the_page_shows_what_happens(tmp_path: Path) -> None:
    run_steps(steps_of(ROOT / "docs/frameworks/tensorflow.md"), tmp_path)


def test_the_example_ends_with_a_clean_audit(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples/train_tensorflow.py"), str(tmp_path / "training")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "killed; one worker resumes at step" in done.stdout
    assert "merged 4000 rows" in done.stdout
    assert "epoch 0: ok" in done.stdout and "epoch 1: ok" in done.stdout
