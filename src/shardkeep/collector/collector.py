"""The handle of a collector process, for the body of a ``with`` statement."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import time
import weakref
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from shardkeep._paths_in_messages import shown
from shardkeep.collector.protocol.messages import error_from
from shardkeep.collector.protocol.settings import (
    DEFAULT_MEMORY_BYTES,
    Durability,
    Settings,
    check_seconds,
)
from shardkeep.errors import CollectorError, ShardkeepError
from shardkeep.files.child_python import child_python
from shardkeep.files.kinds.urls import is_url, local_path, path_or_url

if TYPE_CHECKING:
    from shardkeep.collector.client.client import Client
    from shardkeep.world import World

__all__ = ["Collector"]

_START_S = 60.0
_END_S = 10.0


class Collector:
    """A process that writes one HDF5 file for all clients that send rows to it.

    Parameters
    ----------
    path : str or os.PathLike
        The file. It is made, or continued if a collector wrote it; damage of a crash is repaired. For a URL
        it is on the disk of this host until `close`, which replaces the object.
    address : str, optional
        ``ipc://PATH`` or ``tcp://HOST:PORT`` (``*`` for any). Without it, a Unix socket that only this
        user can reach. In both cases `connect` finds it by the folder of `path`.
    key_file : str or os.PathLike, optional
        A file of ``shardkeep collect --new-key``. Needed for tcp.
    memory_bytes : int
        The most memory for rows that are not durable, for any number of clients.
    durability : {"fsync", "flush"}
        Whether acknowledged rows also survive a power cut, or only the death of processes.
    drain_s : float
        The seconds that clients have to send the rest when the collector ends.
    wait_s : float
        The seconds that `close`, and the end of ``with``, wait until each rank of the world has connected
        and left. After that the other clients must finish: their rows so far are stored, and their next call
        raises `CollectorError`.

    Attributes
    ----------
    path, address : str
        The file, and the address that the collector listens on.
    report : dict or None
        After `close`: "path", "rows" (a dict of the rows of each dataset) and "commits" (their number).

    Raises
    ------
    LockTimeoutError
        Another process writes this file.
    ExistsError
        The file exists, and no collector wrote it; or another host has replaced the object since.
    PlanError, CollectorError, NotFoundError, DurabilityError, RemoteError, MissingExtraError
        It cannot listen on the address, or the file or the store cannot be written.

    Notes
    -----
    **Processes.** The collector is another process, so a busy program does not delay it. If the program that
    started it is killed, it stores the rows of its clients and ends. In a forked or spawned process this
    object has the address, but does not end the collector.

    **Crash.** Every row whose `Client.flush` returned is in the file, exactly once, after SIGKILL of any
    process at any instant. Start a collector on the file again, which repairs it in milliseconds, or open
    it with `shardkeep.hdf5.snapshot`.

    **Readers.** `shardkeep.hdf5.snapshot` opens a consistent view of the file while the collector runs.

    Examples
    --------
    >>> import os, tempfile, h5py
    >>> from shardkeep.world import World
    >>> path = os.path.join(tempfile.mkdtemp(), "all.h5")
    >>> with Collector(path) as collector, collector.connect(World(rank=0, size=1)) as client:
    ...     client.append("loss", [0.5, 0.25])
    ...     client.flush()
    >>> with h5py.File(path) as file:
    ...     file["loss"][:].tolist()
    [0.5, 0.25]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        address: str | None = None,
        *,
        key_file: str | os.PathLike[str] | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        durability: Durability = "fsync",
        drain_s: float = 10.0,
        wait_s: float = 0.0,
    ) -> None:
        settings = Settings(
            place=path_or_url(path),
            address=address or "",
            key_file=None if key_file is None else os.path.abspath(local_path(key_file)),
            memory_bytes=memory_bytes,
            durability=durability,
            drain_s=drain_s,
        )
        self.path = settings.place
        self.report: dict[str, Any] | None = None
        self._key_file = settings.key_file
        self._drain_s = drain_s
        # The object is copied at the start and uploaded at the end; each request has its own limit.
        self._patience_s = 7 * 24 * 3600.0 if is_url(settings.place) else _START_S
        self._wait_s = check_seconds("wait_s", wait_s)
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            child_python("shardkeep.collector.server.process", "child_main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asdict(settings)).encode() + b"\n")
            self._process.stdin.flush()
            self.address: str = self._read_answer(self._patience_s, "start")["address"]
        except BaseException:
            self._kill(wait_s=_END_S)  # it has reported why it cannot start
            raise
        _alive.add(self)

    @property
    def pid(self) -> int | None:
        """Identifier of the process that writes; None after its end, and in other processes."""
        return None if self._process is None else self._process.pid

    def connect(self, world: World | None = None, **options: Any) -> Client:
        """Return a client of this collector.

        Parameters
        ----------
        world : World, optional
            The rank and size of this process; ``World.detect()`` without it.
        **options
            As of `shardkeep.hdf5.connect`.

        Returns
        -------
        Client

        Raises
        ------
        CollectorError, PlanError
            As of `shardkeep.hdf5.connect`.
        """
        from shardkeep.collector.client.connect import connect
        from shardkeep.collector.protocol.keys import client_key_path

        if self._key_file is not None:
            options.setdefault("key_file", client_key_path(self._key_file))
        address = self.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        return connect(address, world, **options)

    def close(self) -> None:
        """Wait for the other ranks (`wait_s`), store the rest of all clients, and close the file.

        Raises
        ------
        CollectorError
            The collector had died, or could not store everything. Acknowledged rows are in the file.
        ExistsError, RemoteError
            The upload to a URL failed. The rows are on this host; another `Collector` of the URL here, or
            ``shardkeep collect --recover URL``, continues.
        """
        self._end(self._wait_s)

    def _end(self, wait_s: float) -> None:
        process = self._process
        if process is None or self._pid != os.getpid():
            return
        try:
            if wait_s > 0:
                self._write_line(b"finish\n")
                assert process.stdout is not None
                select.select([process.stdout], [], [], wait_s)
            # Without a reader where the collector has ended, since every rank has left.
            self._write_line(b"stop\n")
            self.report = self._read_answer(self._drain_s + self._patience_s, "end").get("report")
            process.wait(_START_S)
        finally:
            self._kill(wait_s=_END_S)

    def _write_line(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(ShardkeepError, OSError):
            self._end(0.0)

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None and self._pid == os.getpid():
            self._kill()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_pid": -1}

    def __repr__(self) -> str:
        return f"<Collector of {shown(self.path)!r} on {self.address!r}>"

    def _read_answer(self, timeout_s: float, what: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise CollectorError(f"the collector of {self.path!r} did not {what} within {timeout_s:g} s")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                code = self._process.wait()
                message = f"the collector of {self.path!r} has died (exit code {code})"
                raise CollectorError(f"{message}: start it again, it recovers what was acknowledged")
            line += piece
        values: dict[str, Any] = json.loads(line.splitlines()[-1])
        if "error" in values:
            raise error_from(values, self.path)
        return values

    def _kill(self, wait_s: float = 0.0) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # The end of its stdin makes it drain.
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if wait_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
        _orphans[:] = [one for one in (*_orphans, process) if one.poll() is None]


def _after_fork() -> None:
    # With the pipe open in a child, the collector would not see the end of the parent.
    for one in list(_alive):
        process, one._process = one._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        os.close(pipe.fileno())
            _orphans.append(process)
            process.returncode = 0  # not a child of this process


# Popen warns about processes that are garbage-collected while they run.
_orphans: list[subprocess.Popen[bytes]] = []
_alive: weakref.WeakSet[Collector] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _release_orphans() -> None:
    # They drain after the end of this process, which Popen would warn about.
    for process in (*_orphans, *(one._process for one in _alive)):
        if process is not None and process.poll() is None:
            process.returncode = 0
