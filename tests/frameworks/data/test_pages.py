"""The pages of Ray and Hugging Face, run as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_pages import ROOT, run_steps, steps_of

pytest.importorskip("ray.data")
pytest.importorskip("datasets")


@pytest.mark.parametrize("name", ["ray", "huggingface"])
def test_the_page_is_right(name: str, tmp_path: Path) -> None:
    steps = steps_of(ROOT / f"docs/frameworks/{name}.md")
    run_steps([step for step in steps if "def train_loop" not in step.text], tmp_path)
