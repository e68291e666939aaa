"""The page of the adapter, run as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_pages import ROOT, run_steps, steps_of

pytest.importorskip("keras")


def test_the_page_runs(tmp_path: Path) -> None:
    run_steps(steps_of(ROOT / "docs/frameworks/keras.md"), tmp_path)
