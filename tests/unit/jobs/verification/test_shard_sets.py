from __future__ import annotations

from pathlib import Path

from shardkeep.jobs.verification.finding import Finding
from shardkeep.jobs.verification.inventory import Task
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.jobs.verification.shard_sets import check_sets, with_empty_shards


def _shard(number: int, items: int, *kinds: str) -> VerifiedFile:
    path = f"t-{number}-of-4"
    findings = tuple(Finding(kind, f"{path}: {kind}", path) for kind in kinds)  # type: ignore[arg-type]
    return VerifiedFile(path, "tfrecord", 0, items, findings)


def test_shards_that_cannot_all_have_records() -> None:
    few = [_shard(0, 1), _shard(1, 1), _shard(2, 0, "empty"), _shard(3, 0, "empty")]
    assert [one.findings for one in with_empty_shards(few)] == [()] * 4
    for files in (
        [_shard(0, 4), *few[1:]],
        few[:1] + few[2:],
        [_shard(0, 1, "damage"), *few[1:]],
        [_shard(i, 0, "empty") for i in range(4)],
    ):
        assert with_empty_shards(files) == files


def test_other_names_are_no_set(tmp_path: Path) -> None:
    shard = str(tmp_path / "gone/t-0-of-2")
    assert check_sets([Task("a"), Task("b", named=True), Task(shard, named=True)], [shard]) == []


def test_sets_have_one_entry_each() -> None:
    found = check_sets([Task("a/t-0-of-2"), Task("b/t-0-of-1"), Task("b/t-0-of-2"), Task("c/t-0-of-1")], [])
    assert [(one.path, one.kind, one.findings[0].kind) for one in found] == [
        ("a/t-?-of-2", "set", "incomplete-set"),
        ("b/t-*-of-*", "set", "mixed-sets"),
    ]
