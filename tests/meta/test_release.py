"""What the workflows, the citation and the metadata say agrees with the project."""

from __future__ import annotations

import re
from pathlib import Path

from shardkeep._version import __version__

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_has_the_version() -> None:
    assert re.search(r"^version: (.*)$", text("CITATION.cff"), re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_every_fuzz_target_runs_at_night() -> None:
    targets = {(path.parts[-4], path.stem) for path in ROOT.glob("crates/*/fuzz/fuzz_targets/*.rs")}
    assert set(re.findall(r"\{crate: (.*), target: (.*)\}", text(".github/workflows/fuzz.yml"))) == targets


def test_the_tested_versions_of_python_are_the_declared_ones() -> None:
    versions = re.findall(r'"(3\.\d+)"', re.search(r"python: \[.*\]", text(".github/workflows/ci.yml"))[0])  # type: ignore[index]
    assert re.findall(r"Python :: (3\.\d+)", text("pyproject.toml")) == versions
    assert f'requires-python = ">={versions[0]}"' in text("pyproject.toml")


def test_the_licences_are_those_of_the_locked_crates() -> None:
    listed = re.findall(r"^(\S+) (\d\S*): \S", text("crates/THIRD-PARTY.txt"), re.MULTILINE)
    locked = re.findall(r'name = "(.*)"\nversion = "(.*)"', text("Cargo.lock"))
    assert len(listed) > 20 and set(listed) <= set(locked), "run crates/licences.py"
