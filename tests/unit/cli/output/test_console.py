from __future__ import annotations

import pytest

from shardkeep.cli.output.console import console, facts, one_line_text, print_json, print_parts


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


@pytest.mark.parametrize("name", ["next", "prove"])
def test_a_command_is_one_line_so_that_it_can_be_copied(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    command = "shardkeep verify " + " ".join(["'a b.tfrecord'"] * 20)
    print_parts(facts({"verdict": "word " * 40, name: f"{command}\n(a remark)"}), one_line_text(command))
    *wrapped, first, remark, empty, alone = capsys.readouterr().out.splitlines()
    assert len(wrapped) == 3 and max(map(len, wrapped)) <= 80
    assert (first.split(None, 1), remark.strip(), empty, alone) == (
        [name, command],
        "(a remark)",
        "",
        command,
    )
