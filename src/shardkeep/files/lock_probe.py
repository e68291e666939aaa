"""Whether ``flock`` on a file system excludes everybody who can see it.

No test can tell: the other host is not here. So it is decided by what is known of the file system and
its mount options, and refused where nothing is known. What a test can tell is tried too: of two open
files in one process, the second must not get the lock that the first one holds.

Decisions and where they come from are in ``docs/design/locking.md``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from shardkeep.errors import PlanError
from shardkeep.files.mounts import Mount, mount_of
from shardkeep.files.sidecar import ANYBODY, open_sidecar

__all__ = [
    "HELD",
    "is_of_one_kernel",
    "lock_fault",
    "lock_fault_of",
    "locks_are_trusted",
    "second_lock_is_refused",
]

# One kernel sees all of the file system, so its locks are everybody's.
_LOCAL = """
    affs apfs aufs bcachefs befs bfs btrfs cramfs devtmpfs ecryptfs efs erofs exfat ext2 ext3 ext4
    f2fs fuse.fuse-overlayfs fuseblk hfs hfsplus hpfs hugetlbfs iso9660 jffs2 jfs lxfs minix msdos
    nilfs2 ntfs ntfs3 omfs overlay qnx4 qnx6 ramfs reiserfs romfs rootfs shiftfs simfs squashfs
    tmpfs ubifs udf ufs vfat wslfs xfs zfs zonefs
"""
_ONE_KERNEL = frozenset(_LOCAL.split())
# The locks live on a server or in the cluster, unless one of these mount options keeps them at home.
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
_STAYS = "each mount of it keeps its locks to itself"
_OBJECT_STORE = "an object store has no locks"
_AT_HOME = {
    "fuse.sshfs": _STAYS,
    "fuse.rclone": _STAYS,
    "fuse.seaweedfs": _STAYS,
    "fuse.s3fs": _OBJECT_STORE,
    "fuse.gcsfuse": _OBJECT_STORE,
    "fuse.goofys": _OBJECT_STORE,
    "fuse.geesefs": _OBJECT_STORE,
    "fuse.blobfuse": _OBJECT_STORE,
    "fuse.blobfuse2": _OBJECT_STORE,
    "fuse.mountpoint-s3": _OBJECT_STORE,
    "9p": "a 9p server may grant every lock, so only processes of this virtual machine exclude each other",
    "virtiofs": "virtiofsd keeps locks inside this virtual machine unless it was told otherwise",
    "vboxsf": "a folder shared with a virtual machine has locks of its own in each",
    "beegfs": "BeeGFS keeps locks on each machine unless tuneUseGlobalFileLocks is set",
    "pvfs2": "OrangeFS has no locks between machines",
}
_FRESH_S = 60.0
# What flock says while somebody else has the lock.
HELD = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})


def lock_fault(mount: Mount) -> str | None:
    """Return why a lock on this mount would not exclude everybody, or None if it does.

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
        # Without a subtype, the source is the only name: mountpoint-s3 and davfs2 mount like this.
        kind = "fuse." + os.path.basename(mount.source)
    if kind in _ONE_KERNEL:
        return None
    if kind in _CLUSTER:
        for option in _CLUSTER[kind]:
            name, _, value = option.partition("=")
            if mount.option(name) == value:
                return f"the mount option {option} keeps locks on this machine"
        return None
    if kind in _AT_HOME:
        return _AT_HOME[kind]
    if kind.startswith("fuse"):
        return "whether this FUSE file system passes locks on is not known, and cannot be tried from here"
    return "whether this file system has locks between machines is not known, and cannot be tried from here"


def lock_fault_of(folder: str) -> str | None:
    """Return the fault of the file system under `folder`, with its type and mount point; None if it has none.

    The answer is kept for a minute per file system, so that a lock costs one ``stat`` more.

    Raises
    ------
    OSError
        There is no such folder.
    """
    device = os.stat(os.path.join(folder, ".")).st_dev
    now = time.monotonic()
    known = _faults.get(device)
    # Device numbers of network file systems are given again after an unmount, so nothing is kept for ever.
    if known is not None and now < known[0]:
        return known[1]
    mount = mount_of(folder)
    fault = None if mount is None else lock_fault(mount)
    if mount is not None and fault is not None:
        fault = f"{mount.kind} ({mount.source}) at {mount.point!r}: {fault}"
    _faults[device] = (now + _FRESH_S, fault)
    return fault


def is_of_one_kernel(folder: str) -> bool:
    """Whether all who can see the files of a folder share one kernel, and so its locks of every kind."""
    mount = mount_of(folder)
    return mount is not None and mount.kind in _ONE_KERNEL


def locks_are_trusted() -> bool:
    """Whether the variable ``SHARDKEEP_LOCKS=trust`` says to believe in every lock.

    Raises
    ------
    PlanError
        It has another value.
    """
    value = os.environ.get("SHARDKEEP_LOCKS", "")
    if value not in ("", "trust"):
        raise PlanError(f'SHARDKEEP_LOCKS={value!r} means nothing here: set it to "trust", or not at all')
    return value == "trust"


def second_lock_is_refused(fd: int, lock_path: str) -> bool:
    """Whether the lock that is held through `fd` on `lock_path` keeps out another open file of this process.

    The answer yes is kept for a minute per file system. A no means that ``flock`` does nothing there.
    """
    device = os.fstat(fd).st_dev
    if time.monotonic() < _excluding.get(device, 0.0):
        return True
    try:
        second = open_sidecar(lock_path, "lock file", os.O_RDWR, owners=ANYBODY)
    except OSError:
        return True  # nothing learned
    try:
        if not os.path.samestat(os.fstat(fd), os.fstat(second)):
            return True  # replaced meanwhile
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
