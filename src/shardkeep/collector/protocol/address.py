"""Addresses that a collector can listen on, and the folders of Unix sockets."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import re
import socket
import stat
import tempfile

from shardkeep.errors import CollectorError, PlanError, UntrustedFileError
from shardkeep.files.sidecar import trusted_users, user_name

__all__ = [
    "SocketFolder",
    "check_address",
    "is_address",
    "open_socket_inode",
    "remove_dead_socket",
    "socket_identity",
]

_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[^:/\[\]]+):(\*|\d{1,5})")
# sun_path has 108 bytes on Linux, 104 elsewhere.
_LONGEST_PATH_BYTES = 103
_SOCKET = "collector"


class SocketFolder:
    """A folder for the Unix socket of a file's collector, which only this user can enter.

    Its name derives from that of the file, so the clients of a killed collector find the next one there. If
    another process uses that folder, or the name is too long for a socket (a long ``TMPDIR``), it has a
    random name.

    Parameters
    ----------
    path : str
        The file that the collector writes.
    """

    def __init__(self, path: str) -> None:
        digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
        self.folder = _own_folder(f"shardkeep-{os.geteuid()}-{digest}")
        self.address = f"ipc://{self.folder}/{_SOCKET}"

    def close(self) -> None:
        """Remove the folder, after the collector has closed its socket."""
        # Not as a tree: in a TMPDIR that others may write, another user may have renamed a folder of this
        # user to this name.
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.folder, _SOCKET))
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


def _own_folder(name: str) -> str:
    fitting = [
        folder
        for folder in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"])
        if len(os.fsencode(os.path.join(folder, name, _SOCKET))) <= _LONGEST_PATH_BYTES
    ]
    for folder in fitting:
        path = os.path.join(folder, name)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
            found = os.lstat(path)
            ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
            if ours and not _is_alive(os.path.join(path, _SOCKET)):
                return path
            return tempfile.mkdtemp(prefix="shardkeep-", dir=folder)
        except OSError:
            continue
    message = (
        f"no folder for temporary files can be used for a Unix socket (of {', '.join(fitting) or 'none'})"
    )
    raise CollectorError(f"{message}: pass an address, or set TMPDIR to a short path that can be written")


def is_address(text: str) -> bool:
    """Whether a text is an address, and not the path of a run folder or file."""
    return text.startswith(("ipc://", "tcp://"))


def check_address(address: str) -> str:
    """Return `address` if a collector can listen on it.

    Raises
    ------
    PlanError
        The address is not valid.
    """
    if address.startswith("ipc://"):
        path, size = address[6:], len(os.fsencode(address[6:]))
        if path in ("", "*") or path.startswith("@"):
            message = f"{address!r} names no file, whose folder decides which users may connect"
            raise PlanError(f"{message}: use ipc:///path/of/a/socket")
        if size > _LONGEST_PATH_BYTES:
            message = (
                f"{path!r} has {size} bytes, and the path of a Unix socket {_LONGEST_PATH_BYTES} at most"
            )
            raise PlanError(f"{message}: choose a shorter one, or leave the address out")
        return address
    found = _TCP.fullmatch(address)
    if found is None:
        is_ipv6 = address.startswith("tcp://") and address.count(":") > 2
        advice = (
            "write IPv6 in brackets, as in tcp://[::1]:port" if is_ipv6 else "use tcp://host:port or ipc://"
        )
        raise PlanError(f"{address!r} is not an address: {advice}")
    host, port = found.groups()
    if port != "*" and int(port) > 65535:
        raise PlanError(f"{address!r} has port {port}: choose one up to 65535, or *")
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            message = f"{address!r} has no IPv6 address in its brackets"
            raise PlanError(f"{message}: write tcp://[::1]:port, or [::] for every interface") from None
    return address


def remove_dead_socket(address: str) -> None:
    """Remove the Unix socket of a killed collector; other files and sockets that answer stay."""
    path = address[6:]
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):  # ZeroMQ would remove it
        raise CollectorError(f"{path!r} exists and is not a socket: choose another address")
    alive = _is_alive(path)
    if alive:
        raise CollectorError(f"another collector listens on {address!r}: choose another address")
    if alive is False:
        os.unlink(path)


def socket_identity(address: str) -> tuple[int, int] | None:
    """Return device and inode of the socket of an ``ipc://`` address; None if it does not exist.

    A collector that was started again has another one.
    """
    try:
        found = os.lstat(address[6:])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CollectorError(f"the socket of {address!r} cannot be reached ({error.strerror})") from None
    return found.st_dev, found.st_ino


def open_socket_inode(path: str) -> int | None:
    """Return a descriptor of a Unix socket that a process of this user, or of root, has made.

    The user who binds a socket owns its inode for good, so the owner of the inode is the one that
    ``SO_PEERCRED`` would report after a connection (unix(7)). A connection to ``/proc/self/fd/N`` reaches
    this inode, also after an interruption, whatever has its name by then.

    Returns
    -------
    int or None
        None if the system has no such descriptors.

    Raises
    ------
    FileNotFoundError
        The path does not exist.
    UntrustedFileError
        It belongs to another user, or is not a socket.
    """
    if not hasattr(os, "O_PATH") or not os.path.isdir("/proc/self/fd"):
        _check_socket(path, os.lstat(path))
        return None
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_socket(path, os.fstat(fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_socket(path: str, found: os.stat_result) -> None:
    """Raise `UntrustedFileError` unless a file is a socket of this user or of root."""
    if not stat.S_ISSOCK(found.st_mode):
        fault = "is not a socket"
    elif found.st_uid not in trusted_users():
        fault = f"was made by {user_name(found.st_uid)}"
    else:
        return
    message = f"the socket {path!r} {fault}, so rows of this user are not sent there"
    advice = "start the collector as the same user, or let it listen on tcp:// with a key"
    raise UntrustedFileError(f"{message}: {advice}", path=path)


def _is_alive(path: str) -> bool | None:
    """Whether a process listens on a Unix socket; None without a socket, or if that is not known."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return None
    except OSError:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return None
    return True
