"""Runs of the programs in examples/recipes, in the environment of their framework."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.doc_pages import transcript
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "frameworks" / "recipes.md"


def run_recipe(command: str, folder: Path) -> None:
    """Run a recipe; its output is what its page shows."""
    program, *arguments = command.split()
    file = ROOT / "examples" / "recipes" / program
    assert f"    python examples/recipes/{command}\n" in file.read_text()
    done = subprocess.run(
        [sys.executable, file, *arguments],
        cwd=folder,
        # TensorFlow imports code that it writes to the temporary folder, and leaves the bytecode.
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nas documented\n")
    assert os.listdir(folder) == []
    shown = re.search(
        rf"^\$ python examples/recipes/{re.escape(command)}\n(.*?)^```", PAGE.read_text(), re.M | re.S
    )
    if shown is not None:
        printed = done.stdout.removesuffix("\nas documented\n")
        assert re.fullmatch(transcript(shown[1].splitlines()), printed.strip()), printed
