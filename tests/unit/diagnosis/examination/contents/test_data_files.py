"""Kinds of files from their first bytes. Covers `shardkeep.diagnosis.examination.contents.wording`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from shardkeep.diagnosis.examination.contents import data_files, survey

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
PAGE = b"<!DOCTYPE html><title>Sign in</title>"


def test_data_and_files_of_other_programs_are_healthy(shards: Shards, survey_of: SurveyOf) -> None:
    folder = shards(2, 2)[0].parent
    (folder / "README.md").write_text("text")
    (folder / "model.json").write_text("{}")
    (folder / "notes.bin").write_bytes(bytes(range(256)) * 40)
    with h5py.File(folder / "rows.h5", "w") as file:
        file["x"] = [1]
    found = survey_of(folder)
    assert found.ok
    assert found.fact("content", "TFRecord files") == "2"
    assert found.fact("content", "HDF5 files") == "1"
    assert found.fact("content", "first bytes read") == "of 6 of 6 files"


def test_a_pointer_of_git_lfs_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2, 2)
    paths[1].write_bytes(POINTER)
    one = survey_of(paths[0].parent).only("content")
    assert (one.severity, one.path, one.command) == ("error", str(paths[1]), "git lfs pull")
    assert one.evidence == "it is a git-lfs pointer: the data was never downloaded"
    paths[2].write_bytes(POINTER)
    one = survey_of(paths[0].parent).only("content")
    assert one.path == str(paths[0].parent)
    assert "2 files in the place of data: a git-lfs pointer" in one.evidence
    assert "train-00001-of-00003.tfrecord, train-00002-of-00003.tfrecord" in one.evidence


def test_an_error_page_that_is_passed_by_name_is_an_error(tmp_path: Path, survey_of: SurveyOf) -> None:
    path = tmp_path / "data"
    path.write_bytes(PAGE)
    one = survey_of(path).only("content")
    assert "an HTML page" in one.evidence
    assert one.fix == "fetch the file again"


def test_a_hole_in_the_place_of_the_first_record_is_an_error(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(2, 2)
    paths[0].write_bytes(bytes(5000))
    one = survey_of(paths[0].parent).only("content")
    assert "a hole that a crash" in one.evidence
    assert one.command == f"shardkeep verify {paths[0]}"


def test_of_many_files_the_smallest_and_a_spread_of_others_are_read(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "_MOST_HEADS", 10)
    paths = shards(*[5] * 40)
    paths[23].write_bytes(POINTER)
    found = survey_of(paths[0].parent)
    assert found.fact("content", "first bytes read") == "of 10 of 40 files"
    assert found.fact("content", "TFRecord files") == "40"
    assert found.only("content").path == str(paths[23])


def test_a_file_without_a_sibling_that_was_read_is_not_taken_for_data(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files.Reads, "take", lambda _: False)
    found = survey_of(shards(5, 5)[0].parent)
    assert found.ok
    assert found.fact("content", "first bytes read") == "of 0 of 2 files"
