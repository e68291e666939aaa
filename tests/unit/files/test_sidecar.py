"""Sidecars: files that are opened, and files that are refused."""

import contextlib
import os
import socket
import stat
import threading
import time

import pytest

from shardkeep.errors import LockTimeoutError, ShardkeepError, UntrustedFileError
from shardkeep.files import FileLock
from shardkeep.files.publish import publish, publish_sidecar
from shardkeep.files.sidecar import ANY_USER, make_sidecar, open_sidecar
from shardkeep.tfrecord import Writer
from tests.descriptors import open_descriptors
from tests.second_user import OTHER, THIRD, needs_root, run_as, shared_folder
from tests.waiting import PATIENCE_S

PRECIOUS = b"precious\n" * 100


def plant(kind, place, precious):
    if kind == "link":
        os.symlink(precious, place)
    elif kind == "link to nowhere":
        os.symlink(f"{precious}-missing", place)
    elif kind == "hard link":
        os.link(precious, place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        os.mkdir(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(place)


KINDS = ["link", "link to nowhere", "hard link", "pipe", "folder", "socket"]


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    yield path
    assert path.read_bytes() == PRECIOUS
    assert sorted(os.listdir(tmp_path)) == ["precious", "shared"]


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_regular_file_with_one_name_is_opened(precious, shared, kind):
    place = str(shared / "sidecar")
    plant(kind, place, precious)
    before = open_descriptors()
    for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_WRONLY):
        for owners in (None, ANY_USER):
            with pytest.raises(UntrustedFileError, match=f"'{place}' (is a|of .* has 2 names)") as caught:
                open_sidecar(place, "log", flags, owners=owners)
            assert caught.value.path == place
    assert open_descriptors() == before
    with pytest.raises(FileExistsError):
        make_sidecar(place)


@pytest.mark.parametrize("mode", [0o644, 0o664, 0o646, 0o666])
def test_file_writable_by_others_is_refused_unless_they_can_write_the_data(tmp_path, mode):
    path, data = str(tmp_path / "sidecar"), tmp_path / "data"
    os.close(make_sidecar(path))
    data.touch()
    os.chmod(path, mode)
    for data_mode in (None, 0o644, 0o664, 0o646, 0o666):
        status = None
        if data_mode is not None:
            data.chmod(data_mode)
            status = data.stat()
        extra = mode & 0o022 & ~(data_mode or 0)
        if extra:
            with pytest.raises(UntrustedFileError, match=f"mode {mode:o}.*chmod go-w"):
                open_sidecar(path, "log", data=status)
        else:
            os.close(open_sidecar(path, "log", data=status))
    os.close(open_sidecar(path, "log", owners=ANY_USER))


def test_file_without_a_name_is_not_found(tmp_path, monkeypatch):
    path = str(tmp_path / "sidecar")
    os.close(make_sidecar(path))
    real = os.open

    def opened(*args, **options):
        fd = real(*args, **options)
        os.unlink(path)
        return fd

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(FileNotFoundError):
        open_sidecar(path, "log")


def test_new_sidecar_is_private_by_default(tmp_path):
    for mode in (0o600, 0o644):
        path = tmp_path / f"{mode:o}"
        os.close(make_sidecar(str(path), mode=mode))
        assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "hard link", "pipe", "socket"])
def test_published_sidecar_replaces_any_file_of_its_name(precious, shared, kind):
    place = str(shared / "sidecar")
    plant(kind, place, precious)
    with publish_sidecar(place, mode=0o600) as file:
        file.write(b"mine")
    found = os.lstat(place)
    assert stat.S_ISREG(found.st_mode)
    assert (stat.S_IMODE(found.st_mode), found.st_nlink) == (0o600, 1)
    assert os.listdir(shared) == ["sidecar"]


def test_published_sidecar_has_one_name_at_any_time(tmp_path, monkeypatch):
    """Readers refuse a file with two names, and `publish` gives an old file a second name for a moment."""
    monkeypatch.setattr(os, "link", None)
    for content in (b"old", b"new"):
        with publish_sidecar(str(tmp_path / "sidecar"), mode=0o644) as file:
            file.write(content)
    assert (tmp_path / "sidecar").read_bytes() == b"new"


# -- locks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_lock_refuses_planted_files(precious, shared, kind):
    plant(kind, str(shared / "a.lock"), precious)
    for is_shared, timeout_s in ((False, 0), (True, None)):
        with pytest.raises(UntrustedFileError, match=r"the lock file '.*a\.lock'"):
            FileLock(shared / "a", shared=is_shared, timeout_s=timeout_s, if_unsafe="warn").acquire()
    assert os.listdir(shared) == ["a.lock"]


def test_forged_holder_does_not_break_the_message(tmp_path):
    held = FileLock(tmp_path / "a").acquire()
    for line in (
        '{"host": "h", "pid": 1, "command": "c", "since": 1e300}',
        '{"host": "h", "pid": 1, "command": "c", "since": NaN}',
        '{"host": "h", "pid": 1e999, "command": "c", "since": 1}',
        "[" * 60_000,
        "\0" * 60_000,
    ):
        (tmp_path / "a.lock").write_text(line)
        with pytest.raises(LockTimeoutError, match="by an unknown process"):
            FileLock(tmp_path / "a", timeout_s=0).acquire()
    (tmp_path / "a.lock").write_text(
        '{"host": "h", "pid": 1, "command": "\\u001b[2J' + "x" * 9999 + '", "since": 1}'
    )
    with pytest.raises(LockTimeoutError) as caught:
        FileLock(tmp_path / "a", timeout_s=0).acquire()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    held.release()


@pytest.mark.parametrize("times", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_links_created_during_an_open_are_not_followed(precious, shared, times):
    """A check of the path before it is opened would lose this race; one of the descriptor cannot."""
    place, link = str(shared / "a.lock"), str(shared / "link")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            for act in (
                lambda: os.symlink(precious, link),
                lambda: os.rename(link, place),
                lambda: os.unlink(place),
            ):
                with contextlib.suppress(OSError):
                    act()

    attacker = threading.Thread(target=swap)
    attacker.start()
    taken = refused = 0
    try:
        deadline = time.monotonic() + PATIENCE_S
        while min(taken, refused) < times:
            assert time.monotonic() < deadline, (taken, refused)
            try:
                with FileLock(shared / "a", timeout_s=0):
                    taken += 1
            except UntrustedFileError:
                refused += 1
            except ShardkeepError:
                pass
    finally:
        stop.set()
        attacker.join()
    assert precious.read_bytes() == PRECIOUS
    for name in os.listdir(shared):
        os.unlink(shared / name)


def test_publication_follows_no_link_created_meanwhile(precious, shared):
    place, link = str(shared / "note"), str(shared / "link")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            try:
                os.symlink(precious, link)
                os.rename(link, place)
            except OSError:
                pass

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(100):
            with publish_sidecar(place, mode=0o600) as file:
                file.write(b"mine")
    finally:
        stop.set()
        attacker.join()
    assert precious.read_bytes() == PRECIOUS


# -- a second user -----------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("victim", [0, THIRD])
def test_the_file_of_another_user_is_refused(victim):
    with shared_folder() as folder:
        place = str(folder / "sidecar")
        run_as(OTHER, lambda: os.close(make_sidecar(place, mode=0o644)))
        for flags in (os.O_RDONLY, os.O_RDWR):
            with pytest.raises(UntrustedFileError, match=f"belongs to .*user id {OTHER}"):
                run_as(victim, lambda flags=flags: open_sidecar(place, "log", flags))
        os.chmod(place, 0o600)
        with pytest.raises(UntrustedFileError, match=f"belongs to .*user id {OTHER}"):
            run_as(victim, lambda: open_sidecar(place, "log"))
        # Root's is as good as one's own.
        os.chown(place, 0, 0)
        os.chmod(place, 0o644)
        run_as(victim, lambda: os.close(open_sidecar(place, "log")))


@needs_root
@pytest.mark.parametrize("mode", [0o2775, 0o1777])
def test_two_users_of_a_folder_exclude_each_other(mode):
    """Also in a sticky folder, where the kernel refuses ``O_CREAT`` on another user's file."""
    with shared_folder(mode) as folder:
        path = folder / "results.h5"
        mine = FileLock(path, timeout_s=0).acquire()
        with pytest.raises(LockTimeoutError, match=f"pid {os.getpid()}"):
            run_as(OTHER, lambda: FileLock(path, timeout_s=0).acquire(), umask=0o002)
        mine.release()
        assert os.listdir(folder) == []


@needs_root
@pytest.mark.parametrize("umask", [0o002, 0o022])
@pytest.mark.parametrize("mode", [0o2775, 0o1777])
def test_the_lock_file_that_another_user_left_is_locked_and_not_written(mode, umask):
    with shared_folder(mode) as folder:
        path, place = folder / "results.h5", folder / "results.h5.lock"

        def leave_one():
            FileLock(path).acquire()  # its process ends without giving it back, as after SIGKILL

        run_as(OTHER, leave_one, umask=umask)
        left = place.read_bytes()
        assert place.stat().st_uid == OTHER
        for user in (0, THIRD):

            def take():
                with FileLock(path, timeout_s=0) as held:
                    return held.held, open(place, "rb").read()

            if not place.exists():
                run_as(OTHER, leave_one, umask=umask)
                left = place.read_bytes()
            assert run_as(user, take, umask=umask) == (True, left)
        if place.exists():  # in a sticky folder only its owner can remove it
            assert mode & 0o1000
            assert place.read_bytes() == left


@needs_root
def test_two_users_hold_a_shared_lock(tmp_path):
    with shared_folder(0o2775) as folder:
        path = folder / "results.h5"
        mine = FileLock(path, shared=True).acquire()

        def share():
            with FileLock(path, shared=True, timeout_s=0) as held:
                return held.held

        assert run_as(OTHER, share, umask=0o002)
        with pytest.raises(LockTimeoutError):
            run_as(OTHER, lambda: FileLock(path, timeout_s=0).acquire(), umask=0o002)
        mine.release()
        assert os.listdir(folder) == []


@needs_root
def test_replacement_does_not_take_the_permissions_of_another_user():
    with shared_folder() as folder:
        path = folder / "results"

        def prepare():
            path.touch()
            path.chmod(0o666)

        run_as(OTHER, prepare)
        with publish(path, exists="replace") as file:
            file.write(b"mine")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        with publish_sidecar(str(path), mode=0o644) as file:
            file.write(b"mine")
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert path.stat().st_uid == 0


@needs_root
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
def test_writer_follows_no_link_of_a_second_user(kind):
    with shared_folder() as folder, shared_folder(0o755) as home:
        precious = home / "precious"
        precious.write_bytes(PRECIOUS)
        if kind == "hard link":
            os.chmod(home, 0o777)
            os.chmod(precious, 0o666)  # the kernel lets only those link it who can write it
        run_as(OTHER, lambda: plant(kind, str(folder / "a.tfrecord.lock"), precious))
        for exists in ("fail", "replace", "append"):
            with pytest.raises(UntrustedFileError, match="lock file"):
                Writer(folder / "a.tfrecord", exists=exists)
        assert precious.read_bytes() == PRECIOUS
        assert os.listdir(folder) == ["a.tfrecord.lock"]


def test_a_sidecar_that_is_replaced_during_the_open_is_opened_again(tmp_path, monkeypatch):
    path, newer = tmp_path / "x", tmp_path / "newer"
    path.write_text("old")
    newer.write_text("new")
    opened = os.open

    def open_then_replace(*arguments, **options):
        fd = opened(*arguments, **options)
        if newer.exists():
            os.replace(newer, path)
        return fd

    monkeypatch.setattr(os, "open", open_then_replace)
    fd = open_sidecar(str(path), "index")
    assert os.read(fd, 10) == b"new"
    os.close(fd)
