"""Entries of the knowledge base are complete and consistent."""

from __future__ import annotations

import re
import string

import pytest

from shardkeep.diagnosis.explanation.knowledge import Entry, Explanation, entries
from shardkeep.diagnosis.explanation.machine import Facts

EXPLANATIONS = [
    (entry.name, explanation)
    for entry in entries()
    for explanation in (entry.explanation, *(variant for _, variant in entry.variants))
]
SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https://\S+|measured|docs/\w+\.md")


def test_there_are_at_least_80_entries() -> None:
    assert len(entries()) >= 80


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_the_texts_to_match_are_long_enough_to_mean_something(entry: Entry) -> None:
    assert entry.match
    for pieces in entry.match:
        # A short text needs a condition, or is the number of an error.
        conditions = entry.conditions
        length = max(map(len, pieces))
        assert length >= 9 or conditions.context or conditions.line or ".nfs" in pieces[0]


@pytest.mark.parametrize(("name", "explanation"), EXPLANATIONS)
def test_an_explanation_is_complete(name: str, explanation: Explanation) -> None:
    assert explanation.certainty in ("certain", "likely", "possible")
    assert 10 <= len(explanation.title) <= 90
    assert not explanation.title.endswith(".")
    assert explanation.cause.endswith((".", ")"))
    assert explanation.fix
    assert explanation.prove
    assert explanation.sources
    assert all(SOURCE.fullmatch(source) for source in explanation.sources), explanation.sources
    # A cause that is only possible needs a way to tell.
    assert explanation.certainty != "possible" or explanation.apart or "operand" in explanation.cause


@pytest.mark.parametrize(("name", "explanation"), EXPLANATIONS)
def test_every_placeholder_has_a_value(name: str, explanation: Explanation) -> None:
    facts = Facts(None)
    for text in (explanation.cause, explanation.fix, explanation.here, explanation.apart, explanation.prove):
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
        assert all(facts[field] for field in fields)


def test_titles_differ() -> None:
    titles = [(name, explanation.title) for name, explanation in EXPLANATIONS]
    assert len(set(titles)) == len(titles)
