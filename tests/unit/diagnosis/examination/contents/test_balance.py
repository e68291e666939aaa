"""Shares of the ranks in sets of shards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.diagnosis.examination.contents import balance
from shardkeep.tfrecord import build_index

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


def run(command: str, folder: Path) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, check=True, timeout=200)


def test_a_set_that_the_ranks_divide_equally_is_healthy(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(*[6] * 8)
    found = survey_of(paths[0].parent, world=4)
    assert found.ok
    label = f"{paths[0].parent}/train-*-of-00008.tfrecord"
    assert found.fact("balance", label).startswith("8 shards, ")


def test_fewer_shards_than_ranks_leave_ranks_idle_and_the_command_corrects_it(
    shards: Shards, survey_of: SurveyOf, tmp_path: Path
) -> None:
    shards(30, 30, 30)
    one = survey_of(tmp_path / "data", world=8).only("balance")
    assert (one.severity, one.path) == ("warning", f"{tmp_path}/data/train-*-of-00003.tfrecord")
    assert "3 shards for 8 ranks: 5 ranks without any" in one.evidence
    assert one.command.startswith(f"mkdir {tmp_path}/data-8-shards && shardkeep split ")
    assert "--shards 8 --mode balanced" in one.command
    run(one.command, tmp_path)
    assert len(list((tmp_path / "data-8-shards").iterdir())) == 8
    assert survey_of(tmp_path / "data-8-shards", world=8).of("balance") == []


def test_shares_are_compared_by_records_where_every_shard_has_an_index(
    shards: Shards, survey_of: SurveyOf
) -> None:
    paths = shards(90, 10, 10)
    one = survey_of(paths[0].parent, world=2).only("balance")
    assert (one.severity, "2.3 KiB to 10.2 KiB" in one.evidence) == ("warning", True)
    build_index(paths)
    found = survey_of(paths[0].parent, world=2)
    assert "ranks have 20 records to 90 records, 1.6 times the mean" in found.only("balance").evidence
    label = f"{paths[0].parent}/train-*-of-00003.tfrecord"
    assert "110 records; 55 records or one more for each of 2 ranks" in found.fact("balance", label)


def test_a_small_difference_is_a_note(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(10, 10, 10)
    assert survey_of(paths[0].parent, world=2).only("balance").severity == "note"
    paths = shards(10, 11, 10, 11, folder="even")
    assert survey_of(paths[0].parent, world=2).of("balance") == []


def test_fewer_records_than_ranks_are_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(1, 1, 1)
    build_index(paths)
    one = survey_of(paths[0].parent, world=8).only("balance")
    assert one.severity == "error"
    assert "3 records for 8 ranks: 5 get none" in one.evidence


@pytest.mark.parametrize("name", ["t[r]*ain {x}", "it's"])
def test_names_with_special_characters_are_quoted(
    name: str, shards: Shards, survey_of: SurveyOf, tmp_path: Path
) -> None:
    shards(40, 5, name=name)
    one = survey_of(tmp_path / "data", world=2).only("balance")
    run(one.command, tmp_path)
    assert survey_of(tmp_path / "data-2-shards", world=2).of("balance") == []


def test_files_of_unlike_names_are_one_set(shards: Shards, survey_of: SurveyOf, tmp_path: Path) -> None:
    (first,) = shards(50)
    first.rename(first.parent / "north.tfrecord")
    (second,) = shards(5)
    second.rename(first.parent / "south.tfrecord")
    one = survey_of(first.parent, world=2).only("balance")
    assert one.path == f"{first.parent}/*.tfrecord"
    (first.parent / "north.tfrecord").rename(first.parent / "north")
    one = survey_of(first.parent, world=2).only("balance")
    assert one.path == str(first.parent)
    assert f"shardkeep split {first.parent} " in one.command


def test_many_patterns_in_a_folder_are_one_set(shards: Shards, survey_of: SurveyOf) -> None:
    for number in range(30):
        letters = "".join("abcdefghij"[int(digit)] for digit in f"{number:02d}")
        folder = shards(2, 2, name=letters)[0].parent
    found = survey_of(folder, world=4)
    assert found.of("balance") == []
    assert found.fact("balance", f"{folder}/*-of-00002.tfrecord").startswith("60 shards, ")


def test_a_shard_much_larger_than_the_others_is_named(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(*[5] * 6)
    os.truncate(paths[4], 100 << 20)
    one = survey_of(paths[0].parent).only("balance")
    assert (one.severity, one.path) == ("note", str(paths[4]))
    assert "a shard of 100.0 MiB" in one.evidence


def test_thousands_of_tiny_shards_are_noted(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "_MANY", 20)
    folder = shards(*[1] * 20)[0].parent
    one = survey_of(folder).only("balance")
    assert one.severity == "note"
    assert "20 shards of 116 bytes (median)" in one.evidence
    assert "--shards 1 --mode balanced" in one.command
