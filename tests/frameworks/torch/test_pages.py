"""The page and the example of PyTorch: they run, and print what they show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.doc_pages import run_steps, steps_of
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/frameworks/torch.md"
EXAMPLE = ROOT / "examples/train_torch.py"


def test_the_page_runs(tmp_path: Path) -> None:
    run_steps(steps_of(PAGE), tmp_path, torchrun="torch.distributed.run")


def test_a_run_with_a_killed_rank_resumes_on_fewer_ranks(tmp_path: Path) -> None:
    assert "    python examples/train_torch.py\n" in EXAMPLE.read_text()
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith(
        "3 ranks: rank 1 was killed in step 7, exit code 1; the checkpoint is of step 4"
    )
    assert lines[-3:] == [
        "merged: 1200 rows, 2 of each record: True",
        "epoch 0: ok, 600 of 600 records delivered",
        "epoch 1: ok, 600 of 600 records delivered",
    ]
    assert all(line in PAGE.read_text() for line in lines), done.stdout
