"""Decision whether ``flock`` on a file system excludes all processes that can see it.

A test on one host cannot decide this. The decision therefore uses the type of the file system and its mount
options; unknown types are refused. A local test is done too: of two open files in one process, the second
must not get the lock that the first one holds.

The decisions and their sources are in ``docs/design/locking.md``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from shardkeep.errors import PlanError
from shardkeep.files.locks.mounts import Mount, mount_of
from shardkeep.files.sidecar import ANY_USER, open_sidecar

__all__ = [
    "HELD",
    "is_of_one_kernel",
    "lock_fault",
    "lock_fault_of",
    "locks_are_trusted",
    "second_lock_is_refused",
]

# One kernel serves the whole file system, so its locks exclude all processes.
_LOCAL = """
    affs apfs aufs bcachefs befs bfs btrfs cramfs devtmpfs ecryptfs efs erofs exfat ext2 ext3 ext4
    f2fs fuse.fuse-overlayfs fuseblk hfs hfsplus hpfs hugetlbfs iso9660 jffs2 jfs lxfs minix msdos
    nilfs2 ntfs ntfs3 omfs overlay qnx4 qnx6 ramfs reiserfs romfs rootfs shiftfs simfs squashfs
    tmpfs ubifs udf ufs vfat wslfs xfs zfs zonefs
"""
_ONE_KERNEL = frozenset(_LOCAL.split())
# The locks are on a server or in the cluster, unless one of these mount options keeps them local.
_CLUSTER: dict[str, tuple[str, ...]] = {
    "nfs": ("nolock", "local_lock=flock", "local_lock=all"),
    "nfs4": ("local_lock=flock", "local_lock=all"),
    "cifs": ("nobrl",),
    "smb3": ("nobrl",),
    "lustre": ("localflock",),
    "gfs2": ("localflocks",),
    "ocfs2": ("localflocks",),
    "ceph": (),
    "fuse.ceph-fuse": (),
    "fuse.glusterfs": (),
    "fuse.juicefs": (),
}
_SEPARATE_LOCKS = "each mount of it keeps its locks to itself"
_OBJECT_STORE = "an object store has no locks"
_LOCAL_LOCKS = {
    "fuse.sshfs": _SEPARATE_LOCKS,
    "fuse.rclone": _SEPARATE_LOCKS,
    "fuse.seaweedfs": _SEPARATE_LOCKS,
    "fuse.s3fs": _OBJECT_STORE,
    "fuse.gcsfuse": _OBJECT_STORE,
    "fuse.goofys": _OBJECT_STORE,
    "fuse.geesefs": _OBJECT_STORE,
    "fuse.blobfuse": _OBJECT_STORE,
    "fuse.blobfuse2": _OBJECT_STORE,
    "fuse.mountpoint-s3": _OBJECT_STORE,
    "9p": "a 9p server may grant every lock, so only processes of this virtual machine exclude each other",
    "virtiofs": "virtiofsd keeps locks inside this virtual machine unless it is configured otherwise",
    "vboxsf": "a folder shared with a virtual machine has separate locks in each",
    "beegfs": "BeeGFS keeps locks on each machine unless tuneUseGlobalFileLocks is set",
    "pvfs2": "OrangeFS has no locks between machines",
}
_FRESH_S = 60.0
# Errors of flock while another holder has the lock.
HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


def lock_fault(mount: Mount) -> str | None:
    """Return why a lock on this mount would not exclude all processes, or None if it does.

    Parameters
    ----------
    mount : Mount

    Returns
    -------
    str or None
        A clause without a full stop.

    Examples
    --------
    >>> lock_fault(Mount(1, "/data", "nfs4", "host:/x", ("rw", "local_lock=none"))) is None
    True
    >>> lock_fault(Mount(1, "/data", "nfs4", "host:/x", ("rw", "local_lock=all")))
    'the mount option local_lock=all keeps locks on this machine'
    """
    kind = mount.kind
    if kind in ("fuse", "fuse."):
        # Without a subtype, only the source names the file system: mountpoint-s3 and davfs2 mount like this.
        kind = "fuse." + os.path.basename(mount.source)
    if kind in _ONE_KERNEL:
        return None
    if kind in _CLUSTER:
        for option in _CLUSTER[kind]:
            name, _, value = option.partition("=")
            if mount.option(name) == value:
                return f"the mount option {option} keeps locks on this machine"
        return None
    if kind in _LOCAL_LOCKS:
        return _LOCAL_LOCKS[kind]
    if kind.startswith("fuse"):
        return "whether this FUSE file system passes locks on is not known, and cannot be tested from here"
    return "whether this file system has locks between machines is not known, and cannot be tested from here"


def lock_fault_of(folder: str) -> str | None:
    """Return the fault of the file system of `folder`, with type and mount point; None if it has none.

    The result is cached for a minute per file system, so that a lock needs only one more ``stat``.

    Raises
    ------
    OSError
        The folder does not exist.
    """
    device = os.stat(os.path.join(folder, ".")).st_dev
    now = time.monotonic()
    known = _faults.get(device)
    # Device numbers of network file systems are reused after an unmount, so the cache expires.
    if known is not None and now < known[0]:
        return known[1]
    mount = mount_of(folder)
    if mount is None:  # macOS, or no descriptor is left to read the list of mounts
        return None
    fault = lock_fault(mount)
    if fault is not None:
        fault = f"{mount.kind} ({mount.source}) at {mount.point!r}: {fault}"
    _faults[device] = (now + _FRESH_S, fault)
    return fault


def is_of_one_kernel(folder: str) -> bool:
    """Return True if all processes that can see a folder share one kernel, and so all of its locks."""
    mount = mount_of(folder)
    return mount is not None and mount.kind in _ONE_KERNEL


def locks_are_trusted() -> bool:
    """Return True if the variable ``SHARDKEEP_LOCKS=trust`` is set.

    Raises
    ------
    PlanError
        The variable has another value.
    """
    value = os.environ.get("SHARDKEEP_LOCKS", "")
    if value not in ("", "trust"):
        raise PlanError(f'SHARDKEEP_LOCKS={value!r} is not valid: set it to "trust", or unset it')
    return value == "trust"


def second_lock_is_refused(fd: int, lock_path: str) -> bool:
    """Return True if the lock on `lock_path` through `fd` excludes another open file of this process.

    True is cached for a minute per file system. False means that ``flock`` has no effect there.
    """
    device = os.fstat(fd).st_dev
    if time.monotonic() < _excluding.get(device, 0.0):
        return True
    try:
        second = open_sidecar(lock_path, "lock file", os.O_RDWR, owners=ANY_USER)
    except OSError:
        return True  # unknown
    try:
        if not os.path.samestat(os.fstat(fd), os.fstat(second)):
            return True  # replaced in the meantime
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError as error:
        if error.errno in HELD:
            _excluding[device] = time.monotonic() + _FRESH_S
        return True
    finally:
        os.close(second)


_faults: dict[int, tuple[float, str | None]] = {}
_excluding: dict[int, float] = {}
