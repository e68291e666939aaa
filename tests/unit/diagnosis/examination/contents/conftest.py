"""Examination of files for the tests of its checks."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardkeep.diagnosis.examination.contents.survey import survey
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.tfrecord import Writer
from shardkeep.world import World


@dataclass(frozen=True)
class Found:
    """Problems and facts of some files."""

    problems: list[Problem]
    facts: list[Fact]

    def of(self, check: str) -> list[Problem]:
        return [one for one in self.problems if one.check == check]

    def only(self, check: str) -> Problem:
        (one,) = self.of(check)
        return one

    def fact(self, check: str, name: str) -> str:
        return next(one.value for one in self.facts if (one.check, one.name) == (check, name))

    @property
    def ok(self) -> bool:
        return not self.problems


def subject_of(*paths: str | Path, world: int = 1) -> Subject:
    names = tuple(map(str, paths))
    folders = tuple(name if os.path.isdir(name) else os.path.dirname(name) or "." for name in names)
    return Subject(names, tuple(dict.fromkeys(folders)), World(0, world, 0, world), dict(os.environ))


@pytest.fixture
def survey_of() -> Callable[..., Found]:
    """Return a function that examines paths for a number of ranks."""

    def examine(*paths: str | Path, world: int = 1) -> Found:
        found = list(survey(subject_of(*paths, world=world)))
        problems = [one for one in found if isinstance(one, Problem)]
        return Found(problems, [one for one in found if isinstance(one, Fact)])

    return examine


@pytest.fixture
def shards(tmp_path: Path) -> Callable[..., list[Path]]:
    """Return a function that writes a set of shards with the given numbers of records."""

    def write(*records: int, name: str = "train", folder: str = "data") -> list[Path]:
        (tmp_path / folder).mkdir(exist_ok=True)
        paths = []
        for shard, count in enumerate(records):
            path = tmp_path / folder / f"{name}-{shard:05d}-of-{len(records):05d}.tfrecord"
            with Writer(path) as writer:
                for number in range(count):
                    writer.write(f"{name} {shard} {number}".ljust(100).encode())
            paths.append(path)
        return paths

    return write
