"""Snippets of logs with the cause that must be found, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardkeep.diagnosis import explain
from shardkeep.diagnosis.explanation.knowledge import entries

SNIPPETS = Path(__file__).with_name("snippets")
UNKNOWN = "-"


def read(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the expected "name", or "name :: title of a variant", and the text of each snippet."""
    for part in re.split("^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        expected, _, text = part.partition("\n")
        yield expected, text


CASES = [case for path in sorted(SNIPPETS.glob("*.txt")) for case in read(path)]
TITLES = {entry.name: entry.explanation.title for entry in entries()}


def full(expected: str) -> list[tuple[str, str]]:
    if expected == UNKNOWN:
        return []
    name, _, title = expected.partition(" :: ")
    return [(name, title or TITLES[name])]


@pytest.mark.parametrize(("expected", "text"), CASES)
def test_a_snippet_has_its_cause_and_no_other(expected: str, text: str) -> None:
    assert [(one.name, one.title) for one in explain(text)] == full(expected)


def test_there_are_enough_snippets_of_each_kind() -> None:
    unknown = [text for expected, text in CASES if expected == UNKNOWN]
    pairs = list(read(SNIPPETS / "pairs.txt"))
    assert len(CASES) >= 150
    assert len(unknown) >= 30
    assert len(pairs) >= 40
    assert all(one[0] != other[0] for one, other in zip(pairs[::2], pairs[1::2], strict=True))


def test_every_entry_and_every_variant_has_a_snippet() -> None:
    shown = {found for expected, _ in CASES for found in full(expected)}
    known = {
        (entry.name, explanation.title)
        for entry in entries()
        for explanation in (entry.explanation, *(variant for _, variant in entry.variants))
    }
    assert known - shown == set()


def test_a_whole_log_lists_each_cause_once_and_consequences_last() -> None:
    log = "\n".join(
        [
            "[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]",
            "step 100 loss 0.4",
            "[rank0]: OSError: [Errno 28] No space left on device: '/data/x'",
            "[rank2]: OSError: [Errno 28] No space left on device: '/data/y'",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        ]
    )
    found = explain(log)
    assert [(one.name, one.line, one.count, one.consequence) for one in found] == [
        ("system/no-space", 3, 2, False),
        ("torch/peer-closed", 1, 1, True),
        ("torch/child-failed", 5, 1, True),
    ]


def test_the_source_line_of_a_traceback_is_no_error() -> None:
    text = """Traceback (most recent call last):
  File "a.py", line 1, in f
    "Stale file handle"
KeyError: 1
"""
    assert explain(text) == []


def test_an_unrelated_traceback_above_is_not_the_context() -> None:
    text = (
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
        "Traceback (most recent call last):\n"
        "OSError: [Errno 9] Bad file descriptor\n"
        "starting again\n"
        "Traceback (most recent call last):\n"
        '  File "a.py", line 3, in <module>\n'
        "OSError: [Errno 9] Bad file descriptor\n"
    )
    assert [one.title for one in explain(text)] == [
        "Noise at the end of a program with MirroredStrategy",
        TITLES["system/bad-descriptor"],
    ]


def test_colours_and_progress_bars_do_not_hide_an_error() -> None:
    text = "\x1b[31mOSError\x1b[0m: [Errno 116] \x1b[1mStale file handle\x1b[0m\r 50%|####\r100%\n"
    (found,) = explain(text)
    assert (found.name, found.line) == ("system/stale-handle", 1)
    assert found.evidence == "OSError: [Errno 116] Stale file handle"


def test_a_log_of_many_equal_lines_is_counted_up_to_a_limit() -> None:
    (found,) = explain("OSError: [Errno 116] Stale file handle\n" * 3_000)
    assert found.count == 1_000


def test_an_existing_path_is_inspected_and_named_in_the_command(tmp_path: Path) -> None:
    path = tmp_path / "train 1.tfrecord"
    path.write_bytes(b"\x05" + bytes(40))
    (found,) = explain(f"DataLossError: corrupted record at 0 in '{path}'")
    assert found.prove == f"shardkeep info '{path}'"
    assert [one.path for one in found.paths] == [str(path)]
    assert "41 bytes" in found.paths[0].found


def test_text_must_be_str() -> None:
    with pytest.raises(TypeError, match="text must be a str, not bytes"):
        explain(b"OSError")  # type: ignore[arg-type]
