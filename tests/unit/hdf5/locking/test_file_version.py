import os
from pathlib import Path

from shardkeep.hdf5.locking.file_version import FileVersion


def test_a_change_of_time_or_size_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345678")
    version = FileVersion.of(os.stat(path))
    assert version.is_unchanged(os.stat(path))
    os.utime(path, ns=(1, version.mtime_ns + 1))
    assert not version.is_unchanged(os.stat(path))
    os.truncate(path, 9)
    os.utime(path, ns=(1, version.mtime_ns))
    assert not version.is_unchanged(os.stat(path))


def test_a_file_that_may_grow_may_not_shrink_or_be_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_bytes(b"12345678")
    version = FileVersion.of(os.stat(path))._replace(may_grow=True)
    os.truncate(path, 9)
    assert version.is_unchanged(os.stat(path))
    os.truncate(path, 7)
    assert not version.is_unchanged(os.stat(path))
    other.write_bytes(b"12345678")
    assert not version.is_unchanged(os.stat(other))
