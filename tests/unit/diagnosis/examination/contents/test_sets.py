"""Completeness of sets of shards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


def test_a_missing_shard_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2, 2)
    paths[2].unlink()
    one = survey_of(paths[0].parent).only("sets")
    assert one.severity == "error"
    assert one.evidence == "shard 00002 is missing; found 3 of 4"
    assert (one.fix, one.command) == (
        "fetch or write what is missing",
        f"shardkeep info {paths[0].parent}",
    )


def test_the_rest_of_a_set_need_not_be_named(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2)
    assert survey_of(*paths[:2]).ok
    assert survey_of(paths[1]).ok
    paths[0].unlink()
    assert survey_of(paths[1]).ok
    assert survey_of(f"{paths[1].parent}/./{paths[1].name}").ok


def test_two_sets_of_one_name_are_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    shards(2, 2)
    folder = shards(3, 3, 3)[0].parent
    one = survey_of(folder).only("sets")
    assert one.severity == "error"
    assert "2 of the 2 and 3 of the 3 shards" in one.evidence
    assert "move all but one away" in one.fix


def test_an_empty_shard_is_a_warning(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2)
    paths[1].write_bytes(b"")
    one = survey_of(paths[0].parent).only("sets")
    assert (one.severity, one.path) == ("warning", str(paths[1]))
    assert "has no bytes" in one.evidence
    paths[2].write_bytes(b"")
    one = survey_of(paths[0].parent).only("sets")
    assert one.path == str(paths[0].parent)
    assert "2 files have no bytes" in one.evidence


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_shard_with_two_names_is_an_error(
    link: Callable[..., None], shards: Shards, survey_of: SurveyOf
) -> None:
    paths = shards(2, 2)
    link(paths[0], paths[0].parent / "again.tfrecord")
    one = survey_of(paths[0].parent).only("sets")
    assert one.severity == "error"
    assert "1 file with more than one name" in one.evidence
    assert "again.tfrecord" in one.command


def test_a_file_that_two_arguments_reach_is_listed_once(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    folder = paths[0].parent
    assert survey_of(folder, paths[0], folder / ".." / "data").ok


def test_a_copy_of_a_shard_is_noted(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    shutil.copy(paths[0], paths[0].parent / "train-copy.tfrecord")
    one = survey_of(paths[0].parent).only("sets")
    assert one.severity == "note"
    assert one.command == f"cmp {paths[0]} {paths[0].parent}/train-copy.tfrecord"


@pytest.mark.parametrize("name", ["a.tfrecord.part", "b.tfrecord.crdownload", ".train.tfrecord.aB3xY9"])
def test_an_unfinished_download_is_a_warning(name: str, shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    unfinished = paths[0].parent / name
    unfinished.write_bytes(paths[0].read_bytes()[:150])
    found = survey_of(paths[0].parent)
    one = found.only("sets")
    assert one.severity == "warning"
    assert "1 unfinished file of a download or copy (150 bytes)" in one.evidence
    assert found.fact("content", "TFRecord files") == "2"
