"""Children that answer questions, and that die."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from shardkeep.files.child_python import Children

CHILD = """
import json, os
def main():
    input()
    print(json.dumps({"word": os.environ["WORD"]}), flush=True)
    input()
"""


def test_a_copy_in_another_process_has_the_same_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "word_child.py").write_text(CHILD)
    monkeypatch.syspath_prepend(tmp_path)
    children = Children("word_child", silent_s=30, environment={"WORD": "same"})
    with pickle.loads(pickle.dumps(children)) as copy:
        assert copy.ask("") == {"word": "same"}


@pytest.mark.parametrize(
    ("code", "question"),
    [
        pytest.param("raise SystemExit(3)", "x" * (1 << 20), id="before it has read the question"),
        pytest.param("input(); raise SystemExit(3)", "x", id="before its answer"),
        pytest.param("input(); print('{', end='', flush=True); raise SystemExit(3)", "x", id="in its answer"),
    ],
)
def test_a_child_that_dies(code: str, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dying_child.py").write_text(f"def main():\n    {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Children("dying_child") as children:
        assert children.ask(question) == {"died": 3}
