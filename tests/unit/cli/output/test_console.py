from __future__ import annotations

import pytest
from rich.table import Table

from shardkeep.cli.output.console import console, facts, print_json


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        print_json({"a": float("nan")})


def test_a_pipe_gets_80_columns_without_colour(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = console()
    assert (out.is_terminal, out.width) == (False, 80)
    out.print(facts({"name": "x" * 200}))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert printed.replace("\n", "").replace(" ", "") == "name" + "x" * 200
    assert isinstance(facts({}), Table)
