import fcntl
import os
from types import SimpleNamespace

import pytest

from shardkeep.errors import LockError, LockTimeoutError, PlanError
from shardkeep.files import FileLock, lock
from shardkeep.files.locks import probe
from shardkeep.files.locks.mounts import Mount
from shardkeep.files.locks.probe import lock_fault, lock_fault_of, second_lock_is_refused


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr(probe, "_faults", {})
    monkeypatch.setattr(probe, "_excluding", {})
    monkeypatch.delenv("SHARDKEEP_LOCKS", raising=False)


def mounted(kind, *options, source="host:/x"):
    return Mount(7, "/data", kind, source, ("rw", *options))


@pytest.fixture
def sshfs(monkeypatch):
    calls = []

    def mount_of(folder):
        calls.append(folder)
        return mounted("fuse.sshfs", source="ada@host:/x")

    monkeypatch.setattr(probe, "mount_of", mount_of)
    return calls


@pytest.mark.parametrize(
    "mount",
    [
        *(
            mounted(kind)
            for kind in ("ext4", "xfs", "btrfs", "tmpfs", "zfs", "overlay", "fuseblk", "bcachefs")
        ),
        mounted("fuse.fuse-overlayfs"),
        mounted("nfs4", "local_lock=none"),
        mounted("nfs", "local_lock=posix"),  # fcntl locks stay here, flock does not
        mounted("cifs", "vers=3.1.1"),
        mounted("lustre", "flock"),
        mounted("lustre"),  # noflock: flock fails by itself
        mounted("fuse.juicefs", source="JuiceFS:vol"),
        mounted("ceph"),
        mounted("gfs2"),
    ],
    ids=lambda mount: f"{mount.kind}-{mount.options[-1]}",
)
def test_file_systems_with_shared_locks_have_no_fault(mount):
    assert lock_fault(mount) is None


@pytest.mark.parametrize(
    ("mount", "why"),
    [
        (mounted("nfs4", "local_lock=flock"), "local_lock=flock"),
        (mounted("nfs4", "local_lock=all"), "local_lock=all"),
        (mounted("nfs", "nolock", "local_lock=all"), "nolock"),
        (mounted("cifs", "nobrl"), "nobrl"),
        (mounted("smb3", "nobrl"), "nobrl"),
        (mounted("lustre", "localflock"), "localflock"),
        (mounted("ocfs2", "localflocks"), "localflocks"),
        (mounted("fuse.sshfs"), "to itself"),
        (mounted("fuse.seaweedfs"), "to itself"),
        (mounted("fuse.rclone"), "to itself"),
        (mounted("fuse.gcsfuse"), "object store"),
        (mounted("fuse", source="mountpoint-s3"), "object store"),
        (mounted("fuse.brandnew"), "FUSE file system"),
        (mounted("fuse", source="https://dav"), "FUSE file system"),
        (mounted("9p"), "virtual machine"),
        (mounted("virtiofs"), "virtual machine"),
        (mounted("beegfs"), "tuneUseGlobalFileLocks"),
        (mounted("brandnewfs", source="/dev/x"), "not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_file_systems_without_known_exclusion_have_a_fault(mount, why):
    fault = lock_fault(mount)
    assert fault is not None
    assert why in fault


def test_this_file_system_excludes(tmp_path):
    # Where it does not, most tests of this suite could not run.
    assert lock_fault_of(str(tmp_path)) is None


def test_a_lock_is_refused_before_anything_is_made(tmp_path, sshfs):
    with pytest.raises(LockError) as caught, lock(tmp_path / "a.h5"):
        pass
    error = caught.value
    assert not isinstance(error, LockTimeoutError)
    assert error.path == str(tmp_path / "a.h5")
    for part in (
        "fuse.sshfs (ada@host:/x) at '/data'",
        "to itself",
        "one file for each process",
        "SHARDKEEP_LOCKS=trust",
    ):
        assert part in str(error)
    assert "\n" not in str(error)
    assert os.listdir(tmp_path) == []


def test_shared_locks_are_refused_too(tmp_path, sshfs):
    with pytest.raises(LockError, match="would have no effect"):
        lock(tmp_path / "a", shared=True).acquire()


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_trusted_lock_skips_the_check(tmp_path, sshfs, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("SHARDKEEP_LOCKS", "trust")
    with lock(tmp_path / "a", if_unsafe="trust" if how == "argument" else "refuse") as mine:
        assert mine.held
        with pytest.raises(LockTimeoutError):
            lock(tmp_path / "a", timeout_s=0, if_unsafe="trust").acquire()
    assert sshfs == []


def test_warn_acquires_the_lock_with_a_warning(tmp_path, sshfs):
    with (
        pytest.warns(RuntimeWarning, match=r"fuse\.sshfs.*no other process"),
        lock(tmp_path / "a", if_unsafe="warn") as mine,
    ):
        assert mine.held
    assert os.listdir(tmp_path) == []


def test_warn_continues_without_flock(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "no")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(RuntimeWarning, match="refuses locks"), lock(tmp_path / "a", if_unsafe="warn") as mine:
        assert not mine.held


def test_warn_still_waits_for_a_holder(tmp_path):
    with lock(tmp_path / "a"), pytest.raises(LockTimeoutError):
        lock(tmp_path / "a", timeout_s=0, if_unsafe="warn").acquire()


def test_flock_without_effect_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
    with pytest.raises(LockError, match="two holders at once"):
        lock(tmp_path / "a").acquire()
    assert os.listdir(tmp_path) == []
    with pytest.warns(RuntimeWarning, match="two holders"), lock(tmp_path / "a", if_unsafe="warn"):
        pass
    with lock(tmp_path / "a", if_unsafe="trust") as mine:
        assert mine.held


def test_shared_lock_without_effect_is_detected(tmp_path):
    path = tmp_path / "a.lock"
    with open(path, "w+") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert second_lock_is_refused(file.fileno(), str(path))


def test_result_is_cached_for_a_minute(tmp_path, sshfs, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(probe, "time", SimpleNamespace(monotonic=lambda: now[0]))
    for later_s, asked in [(0, 1), (59, 1), (2, 2)]:
        now[0] += later_s
        assert lock_fault_of(str(tmp_path)) is not None
        assert len(sshfs) == asked


def test_misspelt_override_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDKEEP_LOCKS", "turst")
    with pytest.raises(PlanError, match="turst"):
        lock(tmp_path / "a").acquire()
    with pytest.raises(PlanError, match="if_unsafe"):
        FileLock(tmp_path / "a", if_unsafe="no")
