from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardkeep.demo import run
from shardkeep.errors import ExistsError, MissingExtraError, PlanError


@pytest.mark.parametrize(
    "bad", [{"workers": 0}, {"workers": 65}, {"workers": "4"}, {"epochs": 0}, {"seed": -1}, {"seed": 2**64}]
)
def test_wrong_numbers_are_refused_before_any_file_is_created(tmp_path: Path, bad: dict[str, Any]) -> None:
    (name,) = bad
    with pytest.raises(PlanError, match=rf"{name} must be .* not {bad[name]!r}") as caught:
        run(tmp_path / "out", **bad)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_folder_with_other_files_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ExistsError):
        run(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_missing_extra_leaves_only_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match="pip install"):
        run(tmp_path / "out")
    assert not list((tmp_path / "out" / "data").iterdir())
