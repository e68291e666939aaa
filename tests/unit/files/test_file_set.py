from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shardkeep.errors import DurabilityError, ExistsError, LockError, NotFoundError, PlanError
from shardkeep.files.file_set import FileSet
from tests.descriptors import open_descriptors


def fill(files: FileSet, paths: list[Path], content: bytes = b"whole") -> list[int]:
    numbers = [files.add(str(path)) for path in paths]
    for number in numbers:
        Path(files.temporary(number)).write_bytes(content)
    return numbers


@pytest.mark.parametrize("count", [0, 1, 3, 30])
def test_all_appear_at_the_end(count: int, tmp_path: Path) -> None:
    paths = [tmp_path / str(i) for i in range(count)]
    with FileSet() as files:
        fill(files, paths)
        assert (len(files), files.paths) == (count, list(map(str, paths)))
        assert not any(path.exists() for path in paths)
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)
    assert all(path.read_bytes() == b"whole" for path in paths)


def test_no_file_stays_open_between_steps(tmp_path: Path) -> None:
    before = open_descriptors()
    with FileSet() as files:
        fill(files, [tmp_path / str(i) for i in range(50)])
        assert not open_descriptors() - before
    assert not open_descriptors() - before


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), FileSet() as files:
        fill(files, [tmp_path / str(i) for i in range(9)])
        raise RuntimeError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("taken", [0, 5, 8])
def test_name_taken_in_the_meantime_publishes_nothing(taken: int, tmp_path: Path) -> None:
    with pytest.raises(ExistsError), FileSet() as files:
        fill(files, [tmp_path / str(i) for i in range(9)])
        (tmp_path / str(taken)).write_bytes(b"theirs")
    assert os.listdir(tmp_path) == [str(taken)]
    assert (tmp_path / str(taken)).read_bytes() == b"theirs"
    with pytest.raises(ExistsError), FileSet() as files:
        files.add(str(tmp_path / str(taken)))
    assert os.listdir(tmp_path) == [str(taken)]


def test_replacing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / str(i) for i in range(6)]
    for path in paths[::2]:
        path.write_bytes(b"old")
        path.chmod(0o640)
    real, calls = os.rename, []

    def rename(*arguments: object, **options: object) -> None:
        calls.append(arguments)
        if len(calls) == 4:
            raise OSError(errno.EIO, "Input/output error")
        real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(DurabilityError), FileSet(exists="replace") as files:
        fill(files, paths)
    assert sorted(os.listdir(tmp_path)) == ["0", "2", "4"]
    assert all(path.read_bytes() == b"old" for path in paths[::2])
    monkeypatch.undo()
    with FileSet(exists="replace") as files:
        fill(files, paths)
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2", "3", "4", "5"]
    assert all(path.read_bytes() == b"whole" for path in paths)
    assert paths[0].stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("count", [2, 20])
def test_failed_sync_publishes_nothing(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DurabilityError, match="free space"), FileSet() as files:
        fill(files, [tmp_path / str(i) for i in range(count)])
    assert os.listdir(tmp_path) == []


def test_every_file_and_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    (tmp_path / "other").mkdir()
    with FileSet() as files:
        numbers = fill(files, [tmp_path / "a", tmp_path / "b", tmp_path / "other/c"])
        temporary = [files.temporary(number) for number in numbers]
    assert sorted(synced) == sorted([*temporary, str(tmp_path), str(tmp_path / "other")])
    assert set(synced[:3]) == set(temporary)


def test_files_are_published_in_the_given_order_under_new_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    real = os.link

    def link(source: str, target: str, **options: object) -> None:
        given.append(target)
        real(source, target, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", link)
    with FileSet() as files:
        a, b, c = fill(files, [tmp_path / name for name in "abc"])
        files.rename(b, str(tmp_path / "late"))
        with pytest.raises(PlanError, match="must be in the folder"):
            files.rename(b, str(tmp_path / "other" / "late"))
        files.publish([c, a, b])
    assert given == ["c", "a", "late"]
    assert sorted(os.listdir(tmp_path)) == ["a", "c", "late"]


def test_invalid_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="twice"), FileSet() as files:
        fill(files, [tmp_path / "a", tmp_path / "." / "a"])
    with pytest.raises(NotFoundError), FileSet() as files:
        fill(files, [tmp_path / "a"])
        files.add(str(tmp_path / "no" / "a"))
    with pytest.raises(PlanError, match="append"):
        FileSet(exists="append")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


def test_replaced_or_removed_temporary_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DurabilityError, match="its temporary file was replaced"), FileSet() as files:
        (number,) = fill(files, [tmp_path / "a"])
        (tmp_path / "x").write_bytes(b"theirs")
        os.replace(tmp_path / "x", files.temporary(number))
    assert not (tmp_path / "a").exists()
    with pytest.raises(DurabilityError), FileSet() as files:
        (number,) = fill(files, [tmp_path / "b"])
        os.unlink(files.temporary(number))
    assert not (tmp_path / "b").exists()


def test_a_change_of_directory_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with FileSet() as files:
        fill(files, [Path("a")])
        monkeypatch.chdir(tmp_path / "other")
        fill(files, [Path("b")])
        assert files.paths == ["a", "b"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "other"]
    assert os.listdir(tmp_path / "other") == []


def test_a_forked_child_neither_publishes_nor_removes(tmp_path: Path) -> None:
    with FileSet() as files:
        fill(files, [tmp_path / "a"])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with files:
                    pass
                files.publish()
            except LockError:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert not (tmp_path / "a").exists()
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_of_another_process_is_adopted(tmp_path: Path) -> None:
    (tmp_path / "staging").mkdir()
    code = "import sys; open(sys.argv[1], 'wb').write(b'theirs')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "staging/1")], check=True)
    with FileSet() as files:
        assert files.adopt(str(tmp_path / "a"), str(tmp_path / "staging/1")) == 0
        assert not (tmp_path / "a").exists()
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == ["a", "staging"]
    assert os.listdir(tmp_path / "staging") == []


def test_a_set_whose_file_to_adopt_is_missing_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"whole")
    with pytest.raises(DurabilityError, match="move"), FileSet() as files:
        files.adopt(str(tmp_path / "a"), str(tmp_path / "whole"))
        files.adopt(str(tmp_path / "b"), str(tmp_path / "missing"))
    assert os.listdir(tmp_path) == []
