"""The command ``shardkeep audit``.

Covers `shardkeep.cli.output.audit`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardkeep.cli.app import run
from shardkeep.plan import Dataset, Receipt, Segment
from shardkeep.plan.proof.sealed_json import seal

PROVED = """\
epoch  records  delivered  lost  repeated  dropped  verdict
    0       12         12     0         0        0  exactly once

proved: every record was used exactly once (2 receipts)
"""


def receipt(rank: int, *segments: tuple[int, int, int], seed: int = 7) -> dict[str, Any]:
    return Receipt(
        id=f"{rank:032d}",
        rank=rank,
        world_size=2,
        batch_size=2,
        remainder="mask",
        dataset=Dataset("c0ffee", 12, ("a", "b"), (5, 7)),
        shuffle=False,
        seed=seed,
        segments=tuple(Segment(*segment) for segment in segments),
    ).to_dict()


def write(path: Path, *receipts: dict[str, Any]) -> str:
    path.write_text(json.dumps(receipts))
    return str(path)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", receipt(0, (0, 0, 3)), receipt(1, (0, 0, 3)))
    assert run(["audit", path]) == 0
    assert capsys.readouterr().out == PROVED
    assert run(["audit", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


def test_skipped_and_repaired_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    met: dict[str, Any] = {"skipped": [[0, 6, 100, 180]], "repaired": [[0, 1, 20, 40]]}
    whole = {key: value for key, value in receipt(0, (0, 0, 3)).items() if key != "crc32c"}
    path = write(tmp_path / "a.json", seal(whole | met), receipt(1, (0, 0, 3)))
    assert run(["audit", path]) == 3
    printed = capsys.readouterr().out
    assert "dropped  skipped  verdict" in printed
    assert "epoch 0 skipped as damaged: b record 1 (bytes 100-180)" in printed
    assert "epoch 0 repaired: a record 1 (bytes 20-40)" in printed
    assert "NOT proved" in printed
    del met["skipped"]
    assert run(["audit", write(tmp_path / "b.json", seal(whole | met), receipt(1, (0, 0, 3)))]) == 0
    assert "repaired: a record 1" in capsys.readouterr().out


def test_lost_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", receipt(0, (0, 0, 3)))
    assert run(["audit", path]) == 3
    printed = " ".join(capsys.readouterr().out.split())
    assert "FAILED" in printed
    assert "epoch 0 lost: a record 2, a record 3, b record 1, b record 2, b record 5 and 1 more" in printed
    assert printed.endswith("NOT proved (1 receipt)")
    assert run(["audit", path, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_repeated_records_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = [(0, 0, 3), (0, 4, 2)]
    path = write(tmp_path / "a.json", receipt(0, *twice), receipt(1, *twice))
    assert run(["audit", path]) == 3
    assert "epoch 0 repeated: a record 4, b record 0" in capsys.readouterr().out


def test_an_epoch_under_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", receipt(0, (0, 0, 3), (1, 0, 1)), receipt(1, (0, 0, 3), (1, 0, 1)))
    assert run(["audit", path]) == 3
    assert "not finished" in capsys.readouterr().out
    assert run(["audit", path, "--epochs", "0"]) == 0


def test_receipts_that_do_not_belong_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", receipt(0, (0, 0, 3)), receipt(1, (0, 0, 3), seed=8))
    assert run(["audit", path]) == 3
    assert "different seeds" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("text", "epochs"), [("2", [2]), ("0,1", [0, 1]), ("1-3,0", [0, 1, 2, 3]), ("1,1", [1])]
)
def test_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, epochs: list[int]) -> None:
    path = write(tmp_path / "a.json", receipt(0, (0, 0, 3)))
    assert run(["audit", path, "--epochs", text, "--json"]) == 3
    assert [epoch["epoch"] for epoch in json.loads(capsys.readouterr().out)["epochs"]] == epochs


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1.5"])
def test_epochs_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert run(["audit", str(tmp_path), f"--epochs={text}"]) == 2
    assert "must be like 2, 0,1 or 0-2" in capsys.readouterr().err


def test_more_epochs_than_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(tmp_path), "--epochs=0-999999999999"]) == 2
    assert "more than 100,000 epochs" in capsys.readouterr().err


def test_no_receipts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", str(tmp_path)]) == 10
    assert "no receipt found" in capsys.readouterr().err
