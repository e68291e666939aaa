"""Recipes of TensorFlow: the usual way fails as documented, and the other one delivers each record once."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.frameworks.recipe_run import run_recipe


@pytest.mark.parametrize(
    "command", ["results.py tensorflow", "tensorflow_records.py", "tensorflow_images.py"]
)
def test_comes_out_as_documented(command: str, tmp_path: Path) -> None:
    run_recipe(command, tmp_path)
