"""The size of folders and files: a folder has at most 16 modules, a file about 400 lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 16
MOST_LINES = 450

SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "crates").rglob("*.rs")])


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_folder_has_at_most_16_modules() -> None:
    modules = Counter(relative(path.parent) for path in SOURCES)
    assert {folder: count for folder, count in modules.items() if count > MOST_FILES} == {}


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_has_at_most_about_400_lines(path: Path) -> None:
    # The tests at the end of a Rust file do not count.
    code = path.read_text(encoding="utf-8").partition("\n#[cfg(test)]\nmod ")[0]
    assert len(code.splitlines()) <= MOST_LINES
