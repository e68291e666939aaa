"""The training script with Ray Train: a killed worker, another number of workers, and the audit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import descendants

pytest.importorskip("ray.train")

ROOT = Path(__file__).parents[3]
# Ray starts the processes of three groups of workers.
LIMIT_S = 900


@pytest.mark.timeout(LIMIT_S + 100)
def test_the_script_resumes_and_ends_with_the_proof(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, str(ROOT / "examples/train_ray.py"), str(tmp_path)],
        env={**os.environ, "RAY_DEDUP_LOGS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, errors = child.communicate(timeout=LIMIT_S)
    finally:
        for pid in [*descendants(child.pid), child.pid] if child.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        child.wait()
    assert child.returncode == 0, out + errors
    assert [line for line in out.splitlines() if not line.startswith(("\x1b", "("))] == [
        "a worker was killed at step 13: True",
        "the results have each record once: True",
        "epoch 0: ok, 600 of 600 records delivered",
    ]
    assert "suggests that this is one of several" not in out + errors
