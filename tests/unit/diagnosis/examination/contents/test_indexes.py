"""Stored indexes that fit their shards, or do not. Covers `shardkeep.tfrecord.index.state`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardkeep.tfrecord import Writer, build_index, write_text_index
from tests.second_user import OTHER, needs_root

Shards = Callable[..., list[Path]]
SurveyOf = Callable[..., Any]


def rewrite(path: Path, records: int) -> None:
    with Writer(path, exists="replace") as writer:
        for number in range(records):
            writer.write(b"%d" % number)


def test_an_index_that_fits_is_healthy(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(3, 3)
    build_index(paths)
    for path in paths:
        write_text_index(path, f"{path}.idx")
    found = survey_of(paths[0].parent)
    assert found.ok
    assert found.fact("index", "indexes that fit their shards") == "4"


def test_an_index_of_another_size_is_a_warning_and_the_command_corrects_it(
    shards: Shards, survey_of: SurveyOf
) -> None:
    paths = shards(3, 3)
    build_index(paths)
    rewrite(paths[0], 5)
    one = survey_of(paths[0].parent).only("index")
    assert (one.severity, one.path) == ("warning", str(paths[0]))
    assert "its index is of a shard of 348 bytes, which now has 85" in one.evidence
    assert one.command == f"shardkeep index {paths[0]}"
    build_index(paths[0])
    assert survey_of(paths[0].parent).ok


def test_an_index_of_an_older_version_of_equal_size_is_a_warning(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(3, 3)
    build_index(paths)
    for path in paths:
        os.utime(path, ns=(1, 1))
    one = survey_of(paths[0].parent).only("index")
    assert one.severity == "warning"
    assert "2 shards with an index that does not fit" in one.evidence
    assert one.command == f"shardkeep index {paths[0]} {paths[1]}"


@pytest.mark.parametrize("content", [b"", b"\x89SKIDX\r\n" + bytes(96), b"other"])
def test_an_index_that_cannot_be_read_is_a_warning(
    content: bytes, shards: Shards, survey_of: SurveyOf
) -> None:
    (path,) = shards(3)
    Path(f"{path}.skidx").write_bytes(content)
    one = survey_of(path).only("index")
    assert "its index is damaged or of another version" in one.evidence


@needs_root
def test_an_index_of_another_user_is_named(shards: Shards, survey_of: SurveyOf) -> None:
    (path,) = shards(3)
    build_index(path)
    os.chown(f"{path}.skidx", OTHER, OTHER)
    assert "belongs to" in survey_of(path).only("index").evidence


def test_an_index_without_a_shard_is_noted(shards: Shards, survey_of: SurveyOf) -> None:
    paths = shards(3, 3)
    build_index(paths)
    folder = paths[0].parent
    gone = folder / "gone.tfrecord.skidx"
    (folder / f"{paths[0].name}.skidx").rename(gone)
    one = survey_of(folder).only("index")
    assert (one.severity, one.command) == ("note", f"rm -- {gone}")


@pytest.mark.parametrize("name", ["{shard}.idx", "{stem}.idx"])
def test_a_text_index_that_does_not_fit_is_an_error_and_the_command_corrects_it(
    name: str, shards: Shards, survey_of: SurveyOf
) -> None:
    (path,) = shards(3)
    index = path.parent / name.format(shard=path.name, stem=path.stem)
    write_text_index(path, index)
    rewrite(path, 4)
    one = survey_of(path.parent).only("index")
    assert (one.severity, one.path) == ("error", str(index))
    assert "DALI would read wrong bytes" in one.evidence
    tools = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    subprocess.run(one.command, shell=True, env={**os.environ, "PATH": tools}, check=True, timeout=200)
    assert survey_of(path.parent).ok


def test_a_wrong_variable_is_an_error(
    shards: Shards, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = shards(3)
    build_index(path)
    monkeypatch.setenv("SHARDKEEP_INDEX", "never")
    one = survey_of(path).only("index")
    assert (one.severity, "SHARDKEEP_INDEX='never'" in one.evidence) == ("error", True)
