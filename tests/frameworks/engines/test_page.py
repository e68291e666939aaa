"""The page about engines, run as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doc_pages import ROOT, run_steps, steps_of

pytest.importorskip("distributed")
pytest.importorskip("mpi4py")
pytest.importorskip("ray")


def test_the_page_is_right(tmp_path: Path) -> None:
    run_steps(steps_of(ROOT / "docs/engines.md"), tmp_path)
