"""Recipes of PyTorch: the usual way fails as documented, and the other one delivers each record once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.doc_pages import run_steps, steps_of
from tests.frameworks.recipe_run import PAGE, run_recipe


@pytest.mark.parametrize("command", ["results.py torch", "torch_records.py", "torch_images.py"])
def test_comes_out_as_documented(command: str, tmp_path: Path) -> None:
    run_recipe(command, tmp_path)


def test_the_page_works_as_a_reader_runs_it(tmp_path: Path) -> None:
    run_steps(steps_of(PAGE), tmp_path)
