from __future__ import annotations

import io

import pytest
from rich.console import Console

from shardkeep.cli.output import progress
from shardkeep.cli.output.progress import watched


def run(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, log: bool = False) -> str:
    out = io.StringIO()
    out.isatty = lambda: terminal and not log  # type: ignore[method-assign]
    shown = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    monkeypatch.setattr(progress, "console", lambda *, stderr: shown)
    with watched("verify") as move:
        shown.print("begin")
        move(1 << 20, 2 << 20)
        shown.print("between")
        move.describe("sync to disk")  # type: ignore[attr-defined]
        move(2 << 20, 2 << 20)
        shown.print("at the end")
    return out.getvalue()


def test_a_terminal_shows_the_bytes_and_the_last_part(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(monkeypatch, terminal=True)
    assert "2.0/2.0 MiB" in text
    assert "sync to disk" in text


def test_a_pipe_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, terminal=False) == "begin\nbetween\nat the end\n"


def test_a_log_with_forced_colours_shows_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, terminal=True, log=True) == "begin\nbetween\nat the end\n"


def test_nothing_stands_at_an_unknown_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "?" not in run(monkeypatch, terminal=True).partition("begin")[2].partition("between")[0]
    assert "0/?" not in run(monkeypatch, terminal=True)
