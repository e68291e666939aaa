"""Sets of shards among some names; the names of a pattern are tested with `ShardWriter`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from shardkeep import jobs
from shardkeep.cli.app import run
from shardkeep.errors import PlanError
from shardkeep.tfrecord.shard_names import expand_shards, find_set_faults, shard_names, shard_pattern

PATTERN = "data/t-{shard:05d}-of-{shards:05d}.tfrecord"


def _faults(paths: list[str]) -> list[tuple[str, str, str]]:
    return [(fault.kind, fault.pattern, fault.text) for fault in find_set_faults(paths)]


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["a.tfrecord", "b-of-c.tfrecord", "1-of", "fold3-of-"],
        shard_names(PATTERN, 8),
        shard_names(PATTERN, 8)[::-1],
        shard_names("a-{shard}-of-{shards}", 12),
        shard_names("a_{shard:03d}_of_{shards:03d}.gz", 12),
        [f"mnist-train.tfrecord-0000{i}-of-00002" for i in (0, 1)],
        [f"from-one-{i}-of-3" for i in (1, 2, 3)],
        shard_names("train-{shard}-of-{shards}", 2) + shard_names("test-{shard}-of-{shards}", 3),
        shard_names("old/t-{shard}-of-{shards}", 2) + shard_names("new/t-{shard}-of-{shards}", 3),
    ],
)
def test_whole_sets_have_no_fault(paths: list[str]) -> None:
    assert _faults(paths) == []


def test_missing_shards_are_named() -> None:
    names = shard_names(PATTERN, 8)
    pattern = "data/t-?????-of-00008.tfrecord"
    text = "shard 00003 is missing; found 7 of 8"
    assert _faults(names[:3] + names[4:]) == [("incomplete-set", pattern, text)]
    text = "shards 00000 to 00001, 00003 to 00007 are missing; found 1 of 8"
    assert _faults([names[2]]) == [("incomplete-set", pattern, text)]
    (fault,) = find_set_faults(shard_names(PATTERN, 100)[::2])
    assert fault.text.endswith("00007, 00009 and 45 more ranges are missing; found 50 of 100")


def test_a_set_may_begin_with_shard_1_of_n_only_if_it_has_shard_n() -> None:
    (fault,) = find_set_faults(["a-1-of-3", "a-2-of-3"])
    assert fault.text == "shard 0 is missing; found 2 of 3"
    (fault,) = find_set_faults(["a-1-of-3", "a-3-of-3"])
    assert fault.text == "shard 2 is missing; found 2 of 3"
    (fault,) = find_set_faults(["a-0-of-3", "a-3-of-3"])
    assert fault.text == "there is a shard 3, although the set has 3"


def test_sets_of_different_sizes_are_mixed() -> None:
    paths = shard_names(PATTERN, 8)[:1] + shard_names(PATTERN, 4)
    text = "2 sets have this name: there are 4 of the 4 and 1 of the 8 shards"
    assert _faults(paths) == [("mixed-sets", "data/t-*-of-*.tfrecord", text)]
    assert _faults(["a-0-of-1", "a-00-of-1"]) == [
        ("mixed-sets", "a-?-of-1", "there are 2 files of 1 shards"),
    ]


def test_a_huge_number_of_shards_is_not_counted_one_by_one() -> None:
    (fault,) = find_set_faults(["a-7-of-" + "9" * 200])
    assert fault.text.startswith("shards 0 to 6, 8 to 999")


def test_pattern_of_a_shard() -> None:
    assert shard_pattern("a/t-00003-of-00008.tfrecord") == "a/t-?????-of-00008.tfrecord"
    assert shard_pattern("1-of-2/a.tfrecord") is None


FEATURES = {"x": sk.FixedLen()}


def _make_set(folder: Path, shards: int, name: str = "t") -> list[str]:
    with sk.tfrecord.ShardWriter(f"{folder}/{name}-{{shard:05d}}-of-{{shards:05d}}", shards=shards) as w:
        for i in range(16):
            w.write_example({"x": i})
    return w.paths


def _load(paths: Any, folder: Path, **options: Any) -> int:
    loader = sk.Loader(paths, FEATURES, batch_size=4, world=sk.World(0, 1), **options)
    return sum(int(batch["valid"].sum()) for batch in loader)


def _read_columns(paths: Any, folder: Path, **options: Any) -> int:
    return len(sk.tfrecord.read_columns(paths, FEATURES, **options)["x"])


def _read_arrow(paths: Any, folder: Path, **options: Any) -> int:
    pytest.importorskip("pyarrow")
    return int(sk.tfrecord.read_arrow(paths, FEATURES, **options).num_rows)


def _split(paths: Any, folder: Path, **options: Any) -> int:
    return jobs.split(paths, f"{folder}/out-{{shard}}", shards=2, **options).records


def _concat(paths: Any, folder: Path, **options: Any) -> int:
    return jobs.concat(paths, folder / "out", **options).records


READERS = [_load, _read_columns, _read_arrow, _split, _concat]


@pytest.mark.parametrize("read", READERS)
def test_an_incomplete_set_is_refused_unless_asked(tmp_path: Path, read: Callable[..., int]) -> None:
    paths = _make_set(tmp_path, 8)
    os.unlink(paths[3])
    for given in (f"{tmp_path}/t-*", [*paths[:3], *paths[4:]]):
        with pytest.raises(PlanError, match=r't-\?+-of-00008: shard 00003 is missing.*incomplete="warn"'):
            read(given, tmp_path)
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(path) for path in (*paths[:3], *paths[4:])]
    with pytest.warns(RuntimeWarning, match="shard 00003 is missing; found 7 of 8"):
        assert read(f"{tmp_path}/t-*", tmp_path, incomplete="warn") == 14
    for made in tmp_path.glob("out*"):
        made.unlink()
    assert read(f"{tmp_path}/t-*", tmp_path, incomplete="allow") == 14
    with pytest.raises(PlanError, match="incomplete='maybe' is not valid"):
        read(paths, tmp_path, incomplete="maybe")


@pytest.mark.parametrize("read", READERS)
def test_two_sets_of_one_name_are_refused_unless_asked(tmp_path: Path, read: Callable[..., int]) -> None:
    _make_set(tmp_path, 8)
    whole = _make_set(tmp_path, 4)
    with pytest.raises(PlanError, match=r"2 sets have this name.*pass the files of one set"):
        read(f"{tmp_path}/t-*", tmp_path)
    with pytest.warns(RuntimeWarning, match="2 sets have this name"):
        assert read(f"{tmp_path}/t-*", tmp_path, incomplete="warn") == 32
    for made in tmp_path.glob("out*"):
        made.unlink()
    assert read(whole, tmp_path) == 16


def test_whole_sets_and_parts_on_purpose_are_accepted(tmp_path: Path) -> None:
    paths = _make_set(tmp_path, 8) + _make_set(tmp_path, 2, "test")
    assert expand_shards(f"{tmp_path}/t*", "refuse") == sorted(paths)
    # Of each rank, or for training and validation.
    assert expand_shards(paths[1:8:2], "refuse") == paths[1:8:2]
    assert expand_shards(f"{tmp_path}/t-0000[0-5]*", "refuse") == paths[:6]
    assert expand_shards(iter(paths[:1]), "refuse") == paths[:1]


def test_what_is_not_a_path_is_refused() -> None:
    with pytest.raises(PlanError, match=r"a path must be a str or os\.PathLike, .*not 5"):
        expand_shards(5, "refuse")  # type: ignore[arg-type]


def test_a_file_that_is_named_alone_is_not_a_set(tmp_path: Path) -> None:
    paths = _make_set(tmp_path, 8)
    for path in paths[1:]:
        os.unlink(path)
    assert expand_shards(paths[0], "refuse") == [paths[0]]
    assert expand_shards([Path(paths[0])], "refuse") == [paths[0]]
    assert expand_shards(os.fsencode(paths[0]), "refuse") == [paths[0]]  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="found 1 of 8"):
        expand_shards(f"{tmp_path}/t-*", "refuse")


def test_a_folder_that_is_written_in_two_ways_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _make_set(tmp_path, 3)
    names = ["t-00000-of-00003", "./t-00001-of-00003", f"{tmp_path}/t-00002-of-00003"]
    assert expand_shards(names, "refuse") == names


def test_a_set_may_be_divided_among_folders(tmp_path: Path) -> None:
    paths = _make_set(tmp_path, 4)
    for shard, path in enumerate(paths):
        folder = tmp_path / f"disk{shard % 2}"
        folder.mkdir(exist_ok=True)
        os.rename(path, folder / os.path.basename(path))
    assert len(expand_shards(f"{tmp_path}/disk*/t-*", "refuse")) == 4
    with pytest.raises(PlanError, match=r"disk0/t-.*are missing; found 2 of 4"):
        expand_shards(f"{tmp_path}/disk0/t-*", "refuse")
    (tmp_path / "disk0" / os.path.basename(paths[1])).write_bytes(b"a copy")
    with pytest.raises(PlanError, match="disk1/t-"):
        expand_shards(f"{tmp_path}/disk*/t-*", "refuse")


def test_commands_have_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = _make_set(tmp_path, 3)
    os.unlink(paths.pop(1))
    for command in (["concat"], ["split", "--shards", "2"]):
        output = f"{tmp_path}/{command[0]}" + "-{shard}" * (command[0] == "split")
        assert run([*command, *paths, "-o", output]) == 2
        assert "shard 00001 is missing" in (said := capsys.readouterr().err)
        assert "--incomplete warn" in said
        assert run([*command, *paths, "-o", output, "--incomplete", "allow"]) == 0


def test_a_state_does_not_depend_on_the_option(tmp_path: Path) -> None:
    paths = _make_set(tmp_path, 4)
    os.unlink(paths.pop(2))
    options: dict[str, Any] = {"batch_size": 4, "world": sk.World(0, 1)}
    loader = sk.Loader(f"{tmp_path}/t-*", incomplete="allow", **options)
    next(iter(loader))
    with pytest.warns(RuntimeWarning, match="shard 00002 is missing"):
        again = sk.Loader(paths, incomplete="warn", **options)
    again.load_state_dict(loader.state_dict())
    assert again.position == 4
    assert pickle.loads(pickle.dumps(again)).position == 4  # neither checked nor reported again
