"""The language of docstrings, comments, messages and pages: plain technical English.

Some turns are translated from another language or personify things ("the file is told"). Ordinary English
needs one of these words now and then, so a small share of the lines may have one.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "crates", "docs", "tests", "benchmarks", "examples")
MOST_PERCENT = 0.05

# What to write instead: "is reported", "receives", "inspect", "another process", "is not a", "again",
# "repair", "refers to", "continue", "its own".
TURNS = re.compile(
    r"\b(?:(?:is|are) told|told (?:by|from|that|of|about)|tells? (?:of|that|from|how)|hears?|heard"
    r"|somebody|nobody|whoever|anew|speaks? of|puts? right|mend(?:s|ed|ing)?|go(?:es)? on|looks? at|looked at"
    r"|is no (?!longer\b|more\b)[a-z]+|of its own|at hand|in words|what becomes of|means nothing here)\b",
    re.IGNORECASE,
)


def python_prose(text: str) -> Iterator[str]:
    """Yield the lines of comments, docstrings and messages of raised errors."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (ast.get_docstring(node) or "").splitlines()
        elif isinstance(node, ast.Raise):
            yield from (
                part.value
                for part in ast.walk(node)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def prose(suffix: str, text: str) -> list[str]:
    if suffix == ".py":
        lines: Iterator[str] = python_prose(text)
    else:
        lines = iter(text.splitlines())
    comments_only = suffix == ".rs"
    return [line for line in lines if line.strip() and (not comments_only or line.strip().startswith("//"))]


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if "target" not in path.parts]
    return sorted(path for path in [*found, *ROOT.glob("*.md")] if path.suffix in (".py", ".rs", ".md"))


@pytest.mark.parametrize(
    "line",
    [
        "The file is told apart.",
        "somebody else holds it",
        "it is no whole number",
        "a process of its own",
        "Look at the source",
    ],
)
def test_turns_are_found(line: str) -> None:
    assert TURNS.search(line)


@pytest.mark.parametrize("line", ["it is no longer there", "its own process", "the loan", "amend it"])
def test_ordinary_words_are_not_turns(line: str) -> None:
    assert not TURNS.search(line)


def test_few_lines_have_such_a_turn() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in files()}
    # Most files have none in their code either; to parse all of them takes ten seconds.
    found = {path: prose(path.suffix, text) for path, text in texts.items() if TURNS.search(text)}
    hits = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, lines in found.items()
        for line in lines
        if TURNS.search(line)
    ]
    count = sum(text.count("\n") for text in texts.values())
    percent = 100 * len(hits) / count
    shown = "\n".join(hits[:40])
    assert percent <= MOST_PERCENT, f"{len(hits)} of {count} lines ({percent:.3f} %):\n{shown}"
