"""The size of folders and files: a folder has at most 16 modules, a file about 400 lines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_FILES = 16
MOST_LINES = 450

SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "crates").rglob("*.rs")])


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_folder_has_at_most_16_modules() -> None:
    modules = Counter(relative(path.parent) for path in SOURCES)
    assert {folder: count for folder, count in modules.items() if count > MOST_FILES} == {}


def test_a_file_has_at_most_about_400_lines() -> None:
    # The tests at the end of a Rust file do not count.
    codes = {path: path.read_text(encoding="utf-8").partition("\n#[cfg(test)]\nmod ")[0] for path in SOURCES}
    lines = {relative(path): len(code.splitlines()) for path, code in codes.items()}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
