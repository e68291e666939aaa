"""The page of the documentation and the example, run as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

from tests.doc_pages import ROOT, run_steps, steps_of
from tests.waiting import PATIENCE_S


def test_the_page_is_true(tmp_path: Path) -> None:
    run_steps(steps_of(ROOT / "docs/frameworks/jax.md"), tmp_path)


def test_the_example_trains_through_a_kill(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/train_jax.py")],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"step (\d+)", done.stderr) == ["6", "12", "18", "24", "26"]
    assert done.stdout.splitlines() == [
        "two processes, one is killed at step 15:",
        "three processes, from the checkpoint of step 12:",
        "merged: 620 rows of 310 records and 2 epochs",
        "weights: [0.97, -1.8, 2.76, 0.47]",
        "epoch 0: ok, 310 of 310 records delivered",
        "epoch 1: ok, 310 of 310 records delivered",
    ]
