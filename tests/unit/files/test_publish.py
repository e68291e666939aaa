"""Publication of files: whole under their final name, or not at all.

Covers `shardkeep.files.pending`, `shardkeep.files.positioned` and `shardkeep.files.temporary_file`.
"""

import errno
import fcntl
import os
import pickle
import stat

import pytest

from shardkeep.errors import CorruptDataError, DurabilityError, ExistsError, NotFoundError, PlanError
from shardkeep.files import pending, publish, publish_path, publish_set
from shardkeep.files.publish import publish_raw
from tests.descriptors import open_descriptors


def test_appears_whole_at_the_end(tmp_path):
    target = tmp_path / "a.bin"
    with publish(target) as file:
        file.write(b"x" * 1_000_000)
        file.seek(0)
        file.write(b"head")
        assert not target.exists()
    assert target.read_bytes() == b"head" + b"x" * 999_996
    assert os.listdir(tmp_path) == ["a.bin"]


def test_a_relative_name_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with publish("a") as file:
        file.write(b"1")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("write", [publish, publish_path, publish_raw])
def test_an_error_in_the_body_publishes_nothing(tmp_path, write):
    with pytest.raises(RuntimeError), write(tmp_path / "a"):
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_existing_name_is_refused_at_begin_and_end(tmp_path):
    target = tmp_path / "a"
    target.write_bytes(b"old")
    with pytest.raises(ExistsError, match="exists="), publish(target):
        pass
    target.unlink()
    with pytest.raises(ExistsError), publish(target) as file:
        file.write(b"late")
        target.write_bytes(b"rival")
    assert target.read_bytes() == b"rival"
    assert os.listdir(tmp_path) == ["a"]


def test_a_dangling_link_and_a_folder_are_taken_names(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(ExistsError), publish(tmp_path / name):
            pass
    with pytest.raises(ExistsError, match="folder"), publish(tmp_path / "folder", exists="replace"):
        pass


def test_missing_folder_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="create it first"), publish(tmp_path / "no" / "a"):
        pass


def test_invalid_option_and_duplicate_name_are_refused(tmp_path):
    with pytest.raises(PlanError, match="overwrite"), publish(tmp_path / "a", exists="overwrite"):
        pass
    with pytest.raises(PlanError, match="twice"), publish_set([tmp_path / "a", f"{tmp_path}/./a"]):
        pass
    with pytest.raises(PlanError, match="folder"), publish(f"{tmp_path}/"):
        pass
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
@pytest.mark.parametrize("write", [publish, publish_path])
def test_permissions_follow_the_umask(tmp_path, mask, mode, write):
    before = os.umask(mask)
    try:
        with write(tmp_path / "a"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_replace_keeps_the_permissions_and_follows_a_link(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "latest").symlink_to("a")
    with publish(tmp_path / "latest", exists="replace") as file:
        file.write(b"new")
        assert (tmp_path / "a").read_bytes() == b"old"
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["a", "latest"]


def test_long_names_are_published(tmp_path):
    name = "é" * 127
    with publish(tmp_path / name) as file:
        file.write(b"1")
    assert os.listdir(tmp_path) == [name]


def test_path_may_be_replaced_by_its_writer(tmp_path):
    with publish_path(tmp_path / "a") as temporary:
        os.unlink(temporary)
        with open(temporary, "xb") as file:
            file.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    with pytest.raises(DurabilityError), publish_path(tmp_path / "b") as temporary:
        os.unlink(temporary)
    assert os.listdir(tmp_path) == ["a"]


def test_closing_the_file_in_the_body_is_allowed(tmp_path):
    with publish(tmp_path / "a") as file:
        file.write(b"1")
        file.close()
    assert (tmp_path / "a").read_bytes() == b"1"


def test_a_set_appears_together_or_not_at_all(tmp_path):
    names = [tmp_path / name for name in "abc"]
    with publish_set(names) as files:
        for i, file in enumerate(files):
            file.write(b"%d" % i)
        assert not any(name.exists() for name in names)
    assert [name.read_bytes() for name in names] == [b"0", b"1", b"2"]
    for name in names[:2]:
        name.unlink()
    with pytest.raises(ExistsError), publish_set([*names[:2], tmp_path / "d"]):
        (tmp_path / "d").write_bytes(b"rival")
    assert sorted(os.listdir(tmp_path)) == ["c", "d"]


# -- every step fails once ------------------------------------------------------------------------


def _fail_at(monkeypatch, function, number, code):
    """Let the `number`-th call of os.`function` fail (counted from 1)."""
    calls = []
    original = getattr(os, function)

    def failing(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    monkeypatch.setattr(os, function, failing)
    return calls


# Calls made by a set of two files: fsync = 2 files, then the folder; link = 2 names.
_STEPS = [("fsync", 1), ("fsync", 2), ("fsync", 3), ("link", 1), ("link", 2), ("unlink", 1), ("unlink", 2)]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize(("function", "number"), _STEPS)
def test_a_new_set_leaves_nothing_when_a_step_fails(tmp_path, monkeypatch, function, number, code):
    calls = _fail_at(monkeypatch, function, number, code)
    with (
        pytest.raises(DurabilityError) as caught,
        publish_set([tmp_path / "a", tmp_path / "b"]) as files,
    ):
        files[0].write(b"1")
    assert len(calls) >= number
    assert caught.value.errno == code
    assert isinstance(caught.value.__cause__, OSError)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("function", "number"), [("fsync", 1), ("fsync", 2), ("fsync", 3), ("rename", 1), ("rename", 2)]
)
def test_old_files_are_restored_when_a_step_fails(tmp_path, monkeypatch, function, number):
    for name in "ab":
        (tmp_path / name).write_bytes(b"old " + name.encode())
    inodes = [(tmp_path / name).stat().st_ino for name in "ab"]
    _fail_at(monkeypatch, function, number, errno.EIO)
    with (
        pytest.raises(DurabilityError),
        publish_set([tmp_path / "a", tmp_path / "b"], exists="replace") as files,
    ):
        files[0].write(b"new")
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"old a", b"old b"]
    assert [(tmp_path / name).stat().st_ino for name in "ab"] == inodes
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_failed_write_cannot_be_published_even_if_swallowed(tmp_path, monkeypatch):
    with pytest.raises(DurabilityError, match="free space"), publish(tmp_path / "a") as file:
        _fail_at(monkeypatch, "pwrite", 1, errno.ENOSPC)
        with pytest.raises(DurabilityError):
            file.write(b"x" * 1_000_000)
        monkeypatch.undo()
        file.write(b"y" * 1_000_000)
    assert os.listdir(tmp_path) == []


def test_an_error_of_the_body_is_not_masked_by_one_of_the_last_write(tmp_path, monkeypatch):
    with pytest.raises(ZeroDivisionError), publish(tmp_path / "a") as file:
        file.write(b"still in memory")
        _fail_at(monkeypatch, "pwrite", 1, errno.ENOSPC)
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_the_temporary_file_is_locked_unless_others_open_it_by_name(tmp_path):
    def is_locked(name):
        with open(tmp_path / name, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    with publish(tmp_path / "a"):
        assert is_locked(os.listdir(tmp_path)[0])
    assert not is_locked("a")
    with publish_path(tmp_path / "b") as temporary:
        assert not is_locked(os.path.basename(temporary))


def test_a_deferred_failure_is_raised_at_the_end(tmp_path, monkeypatch):
    with pytest.raises(DurabilityError) as caught, publish_raw(tmp_path / "a") as file:
        file.deferred = True
        _fail_at(monkeypatch, "pwrite", 2, errno.EDQUOT)
        assert [file.write(b"12") for _ in range(3)] == [2, 2, 2]
    assert caught.value.errno == errno.EDQUOT
    assert os.listdir(tmp_path) == []


def test_a_failure_comes_before_every_error_that_follows_from_it(tmp_path):
    with pytest.raises(DurabilityError) as caught, publish_raw(tmp_path / "a") as file:
        file.deferred = True
        with file.failure_first():
            file.fail(OSError(errno.EIO, "lost"))
            raise CorruptDataError("the source cannot be read", path="source")
    assert caught.value.errno == errno.EIO


def test_bytes_past_the_end_are_read_as_zeros(tmp_path):
    with publish_raw(tmp_path / "a") as file:
        file.write(b"12")
        for position, expected in ((1, b"2" + bytes(7)), (500, bytes(8))):
            buffer = bytearray(b"\xa5" * 8)
            file.seek(position)
            assert file.readinto(buffer) == 8
            assert buffer == expected
            assert file.tell() == position + 8
    assert (tmp_path / "a").read_bytes() == b"12"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: original(fd, data[:1000], offset))
    data = os.urandom(10_500)
    with publish(tmp_path / "a") as file:
        file.write(data)
    assert (tmp_path / "a").read_bytes() == data


@pytest.mark.parametrize("has_rename_flags", [True, False])
def test_exists_fail_works_without_hard_links(tmp_path, monkeypatch, has_rename_flags):
    def no_link(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    def no_flags(*_):
        raise OSError(errno.EINVAL, "no flags here")

    monkeypatch.setattr(os, "link", no_link)
    if not has_rename_flags:
        monkeypatch.setattr(pending, "_rename_noreplace", no_flags)
    with publish(tmp_path / "a") as file:
        file.write(b"1")
    with pytest.raises(ExistsError), publish(tmp_path / "b"):
        (tmp_path / "b").write_bytes(b"rival")
    with publish(tmp_path / "a", exists="replace") as file:
        file.write(b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    assert (tmp_path / "b").read_bytes() == b"rival"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_no_sync_when_not_durable(tmp_path, monkeypatch):
    calls = _fail_at(monkeypatch, "fsync", 1, errno.EIO)
    with publish(tmp_path / "a", durable=False) as file:
        file.write(b"1")
    assert calls == []


def test_no_descriptor_is_lost(tmp_path):
    before = open_descriptors()
    for _ in range(3):
        with publish_set([tmp_path / "a", tmp_path / "b"], exists="replace"):
            pass
        with pytest.raises(ZeroDivisionError), publish_path(tmp_path / "c"):
            raise ZeroDivisionError
        with pytest.raises(ExistsError), publish(tmp_path / "a"):
            pass
    assert not open_descriptors() - before


def test_errors_survive_pickle(tmp_path, monkeypatch):
    _fail_at(monkeypatch, "fsync", 1, errno.EIO)
    with pytest.raises(DurabilityError) as caught, publish(tmp_path / "a"):
        pass
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path) == (str(caught.value), str(tmp_path / "a"))
