"""Paths of index files, and errors of index files, which never fail a read."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import DurabilityError, PlanError
from shardkeep.tfrecord import Reader, Writer, build_index
from shardkeep.tfrecord.index.fingerprint import sample_blocks
from shardkeep.tfrecord.index.index import load_index
from shardkeep.tfrecord.index.store import index_paths, save


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(tmp_path / "cache" / "of" / "indexes"))
    return tmp_path / "cache" / "of" / "indexes"


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 4 MiB."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def shard(path: Path, *, records: int = 1200) -> Path:
    path.parent.mkdir(exist_ok=True)
    with Writer(path) as w:
        for i in range(records):
            w.write(b"x" * (900 + i % 100))
    return path


def unscannable(*args: object, **kwargs: object) -> None:
    raise AssertionError("scanned")


def assert_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shardkeep._core.scan_part", unscannable)
        assert load_index(path).records == 1200


def test_index_is_stored_next_to_the_shard(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    load_index(path)
    assert sorted(os.listdir(tmp_path / "data")) == ["x.tfrecord", "x.tfrecord.skidx"]
    assert not cache.exists()
    assert_stored(path, monkeypatch)


def test_reader_stores_nothing_next_to_the_shards_by_default(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDKEEP_INDEX")
    path = shard(tmp_path / "data" / "x.tfrecord")
    load_index(path)
    assert os.listdir(tmp_path / "data") == ["x.tfrecord"]
    assert len(os.listdir(cache)) == 1
    assert_stored(path, monkeypatch)
    shard(tmp_path / "data" / "y.tfrecord")
    build_index(tmp_path / "data" / "y.tfrecord")
    assert sorted(os.listdir(tmp_path / "data")) == ["x.tfrecord", "y.tfrecord", "y.tfrecord.skidx"]
    assert len(os.listdir(cache)) == 1


def test_index_of_a_read_only_file_system_is_stored_in_the_cache(
    mounted: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(mounted / "x.tfrecord")
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    assert len(Reader(path)) == 1200
    assert os.listdir(mounted) == ["x.tfrecord"]
    assert len(os.listdir(cache)) == 1
    assert_stored(path, monkeypatch)
    monkeypatch.chdir(mounted)
    assert_stored(Path("x.tfrecord"), monkeypatch)  # the name is of the absolute path


def test_index_is_stored_in_the_cache_if_the_disk_is_full(
    mounted: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(mounted / "x.tfrecord")
    with (mounted / "rest").open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(b"x" * 4096)
    assert load_index(path).records == 1200
    assert sorted(os.listdir(mounted)) == ["rest", "x.tfrecord"]
    assert len(os.listdir(cache)) == 1
    assert_stored(path, monkeypatch)


@pytest.mark.filterwarnings("ignore:the index:RuntimeWarning")
def test_index_is_stored_in_the_cache_without_write_permission(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For root no folder is read-only; a folder with the name of the index has the same effect."""
    path = shard(tmp_path / "data" / "x.tfrecord")
    (tmp_path / "data" / "x.tfrecord.skidx").mkdir()
    assert build_index(path).records == 1200
    assert load_index(path).records == 1200
    assert_stored(path, monkeypatch)
    assert sorted(os.listdir(tmp_path / "data")) == ["x.tfrecord", "x.tfrecord.skidx"]


def _folder_with_that_name(path: Path) -> None:
    path.mkdir()


def _link_with_that_name(path: Path) -> None:
    path.symlink_to("elsewhere")


@pytest.mark.filterwarnings("ignore:the index:RuntimeWarning")
@pytest.mark.parametrize(
    ("prevent", "reason"),
    [(_folder_with_that_name, "is a folder"), (_link_with_that_name, "is a symbolic link")],
)
def test_index_that_cannot_be_stored_is_an_error_unless_a_reader_made_it(
    tmp_path: Path, prevent: Callable[[Path], None], reason: str
) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    prevent(tmp_path / "data" / "x.tfrecord.skidx")
    (tmp_path / "cache").write_bytes(b"a file where the folder should be")
    with pytest.raises(
        DurabilityError, match=f"x.tfrecord' was not stored: .*{reason}.*; and cannot .*cache"
    ):
        build_index(path)
    with pytest.raises(DurabilityError, match="SHARDKEEP_INDEX_DIR"):
        build_index([path, shard(tmp_path / "data" / "y.tfrecord")])
    assert load_index(path).records == len(Reader(path)) == 1200


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES, errno.EDQUOT])
def test_error_of_the_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    original = os.open

    def refused(name: str, flags: int, *rest: int, **options: int) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), name)
        return original(name, flags, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(DurabilityError, match=errno.errorcode[number]):
            build_index(path)
        assert load_index(path).records == 1200


def test_index_of_a_growing_file_is_returned_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    original = sample_blocks

    def grow(*arguments: Any) -> Any:
        found = original(*arguments)
        with Writer(path, exists="append") as writer:
            writer.write(b"late")
        return found

    monkeypatch.setattr("shardkeep.tfrecord.index.index.sample_blocks", grow)
    with pytest.warns(
        RuntimeWarning, match="x.tfrecord' changed during the scan, and its index is not stored"
    ):
        build_index(path)
    assert os.listdir(tmp_path / "data") == ["x.tfrecord"]


def test_stale_index_next_to_the_shard_does_not_hide_a_valid_one_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord", records=1500)
    build_index(path)
    path.unlink()
    shard(path)
    monkeypatch.setenv("SHARDKEEP_INDEX", "cache")
    build_index(path)
    monkeypatch.delenv("SHARDKEEP_INDEX")
    assert_stored(path, monkeypatch)


def test_environment_variable_selects_cache_or_off(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    monkeypatch.setenv("SHARDKEEP_INDEX", "off")
    assert load_index(path).records == build_index(path).records == 1200
    assert os.listdir(tmp_path / "data") == ["x.tfrecord"]
    assert not cache.exists()
    monkeypatch.setenv("SHARDKEEP_INDEX", "cache")
    load_index(path)
    assert os.listdir(tmp_path / "data") == ["x.tfrecord"]
    assert_stored(path, monkeypatch)
    monkeypatch.setenv("SHARDKEEP_INDEX", "off")
    with pytest.raises(AssertionError, match="scanned"):
        assert_stored(path, monkeypatch)
    monkeypatch.setenv("SHARDKEEP_INDEX", "on")
    with pytest.raises(PlanError, match="SHARDKEEP_INDEX='on'"):
        load_index(path)


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder() -> str:
        return os.path.dirname(list(index_paths("x"))[1])

    assert folder() == str(tmp_path / "cache/of/indexes")
    monkeypatch.delenv("SHARDKEEP_INDEX_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert folder() == "/xdg/shardkeep/index"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert folder() == "/home/me/.cache/shardkeep/index"
    names = {list(index_paths(path))[1] for path in ("x", "y", "./x", os.path.abspath("x"))}
    assert len(names) == 2


def test_link_with_the_name_of_an_index_is_not_followed(tmp_path: Path, cache: Path) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord")
    precious = tmp_path / "precious"
    precious.write_bytes(b"not an index")
    beside = tmp_path / "data" / "x.tfrecord.skidx"
    beside.symlink_to(precious)
    with pytest.warns(
        RuntimeWarning, match="is a symbolic link of .* until then each reader scans the shard"
    ):
        load_index(path)
    assert precious.read_bytes() == b"not an index"
    assert len(os.listdir(cache)) == 1
    beside.unlink()
    os.rename(cache / os.listdir(cache)[0], precious)
    beside.symlink_to(precious)
    good = precious.read_bytes()
    load_index(path)
    assert precious.read_bytes() == good
    assert len(os.listdir(cache)) == 1


def test_nothing_is_stored_for_small_files_unless_asked(tmp_path: Path) -> None:
    path = shard(tmp_path / "data" / "x.tfrecord", records=1000)
    assert len(Reader(path)) == 1000
    assert os.listdir(tmp_path / "data") == ["x.tfrecord"]
    build_index(path)
    assert sorted(os.listdir(tmp_path / "data")) == ["x.tfrecord", "x.tfrecord.skidx"]


def test_shard_with_a_name_of_255_bytes_is_indexed_in_the_cache(tmp_path: Path, cache: Path) -> None:
    path = shard(tmp_path / "data" / "short")
    path = path.rename(path.with_name("n" * 255))
    assert load_index(path).records == 1200
    assert len(os.listdir(cache)) == 1


def test_offsets_that_do_not_reach_the_end_are_not_stored(tmp_path: Path) -> None:
    path = shard(tmp_path / "x.tfrecord")
    index = load_index(path)
    os.unlink(tmp_path / "x.tfrecord.skidx")
    status = path.stat()
    fd = os.open(path, os.O_RDONLY)
    fingerprint, _ = sample_blocks(fd, status.st_size, status.st_mtime_ns)
    os.close(fd)
    assert save(str(path), status, fingerprint, index.starts[:-1]) is None
    assert save(str(path), status, fingerprint, index.starts) == f"{path}.skidx"
