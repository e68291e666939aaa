"""`Collector`: a collector in a process of its own, for the body of a ``with``."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import time
import weakref
from typing import TYPE_CHECKING, Any

from shardkeep import errors
from shardkeep.collector.protocol.settings import DEFAULT_MEMORY_BYTES, Durability, Settings, check_seconds
from shardkeep.errors import CollectorError, ShardkeepError
from shardkeep.files.child_python import child_python

if TYPE_CHECKING:
    from shardkeep.collector.client.client import Client
    from shardkeep.world import World

__all__ = ["Collector"]

_START_S = 60.0
_LEAVE_S = 10.0


class Collector:
    """The one process that writes an HDF5 file, for all who send rows to it.

    Parameters
    ----------
    path : str or os.PathLike
        The file. It is made, or continued if a collector wrote it; a crash is repaired.
    address : str, optional
        ``ipc://PATH`` or ``tcp://HOST:PORT`` (``*`` for any). Without it, a Unix socket that only this
        user can reach. Either way `connect` finds it by the folder of `path`.
    key_file : str or os.PathLike, optional
        As ``shardkeep collect --new-key`` writes it. Needed for tcp.
    memory_bytes : int
        Most memory for rows that are on their way, whatever the number of clients.
    durability : {"fsync", "flush"}
        Whether what was acknowledged survives a power cut too, or the death of processes only.
    drain_s : float
        How long clients may take to send the rest when it ends.
    wait_s : float
        How long `close`, and the end of ``with``, let the other ranks go on, until each rank of the world has
        been there and left. Without it, or after that, they are told to finish: what they have appended is
        stored, and their next call raises `CollectorError`.

    Raises
    ------
    LockTimeoutError
        Another process writes this file.
    ExistsError
        The file is there and no collector wrote it.
    PlanError, CollectorError, NotFoundError, DurabilityError
        It cannot listen there, or the file cannot be written.

    Notes
    -----
    **Processes.** The work is done in a process of its own, so a busy program does not stall it. If the
    program that started it is killed, it drains and ends. In a forked or spawned process the object tells
    the address and ends nothing.

    **Crash.** Every row whose `flush` returned is in the file, exactly once, after SIGKILL of any process at
    any instant: start a collector on the file again (it repairs it in milliseconds), or open it with
    `shardkeep.hdf5.snapshot`.

    **Readers.** While it runs, `shardkeep.hdf5.snapshot` gives a whole view of the file.

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
            path=os.path.abspath(path),
            address=address or "",
            key_file=None if key_file is None else os.path.abspath(key_file),
            memory_bytes=memory_bytes,
            durability=durability,
            drain_s=drain_s,
        )
        self.path = settings.path
        self.report: dict[str, Any] | None = None
        self._key_file = settings.key_file
        self._drain_s = drain_s
        self._wait_s = check_seconds("wait_s", wait_s)
        self._pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            child_python("shardkeep.collector.server.process", "child_main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(settings.to_json()).encode() + b"\n")
            self._process.stdin.flush()
            self.address: str = self._answer(_START_S, "start")["address"]
        except BaseException:
            process = self._process
            self._kill()
            if process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_LEAVE_S)  # it has said why it cannot start, and has nothing to drain
            raise
        _alive.add(self)

    @property
    def pid(self) -> int | None:
        """The process that writes; None after the end, and in other processes."""
        return None if self._process is None else self._process.pid

    def connect(self, world: World | None = None, **options: Any) -> Client:
        """Return a client of this collector; options as of `shardkeep.hdf5.connect`."""
        from shardkeep.collector.client.connect import connect
        from shardkeep.collector.protocol.keys import client_key_path

        if self._key_file is not None:
            options.setdefault("key_file", client_key_path(self._key_file))
        address = self.address.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
        return connect(address, world, **options)

    def close(self) -> None:
        """Wait for the other ranks (`wait_s`), let clients send the rest, store it, close the file.

        Raises
        ------
        CollectorError
            It had died, or could not store everything; with what it said last.
        """
        self._end(self._wait_s)

    def _end(self, wait_s: float) -> None:
        process = self._process
        if process is None or self._pid != os.getpid():
            return
        try:
            if wait_s > 0:
                self._say(b"finish\n")
                assert process.stdout is not None
                select.select([process.stdout], [], [], wait_s)
            # Nobody hears it where everybody has left.
            self._say(b"stop\n")
            self.report = self._answer(self._drain_s + _START_S, "end").get("report")
            process.wait(_START_S)
        finally:
            self._kill()

    def _say(self, line: bytes) -> None:
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
        return f"<Collector of {self.path!r} on {self.address!r}>"

    def _answer(self, timeout_s: float, what: str) -> dict[str, Any]:
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
            raise _remote(values["error"], values["text"], self.path)
        return values

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # The end of its stdin tells it to drain; it is not waited for.
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        _orphans[:] = [one for one in (*_orphans, process) if one.poll() is None]


def _remote(name: str, text: str, path: str) -> ShardkeepError:
    kind = getattr(errors, name, CollectorError)
    if not (isinstance(kind, type) and issubclass(kind, ShardkeepError)):
        kind = CollectorError
    return kind(text, path=path)


def _after_fork() -> None:
    # A child that kept the pipe would keep the collector from seeing the end of its parent.
    for one in list(_alive):
        process, one._process = one._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        os.close(pipe.fileno())
            _orphans.append(process)
            process.returncode = 0  # not a child of this process


# Popen warns about children that are forgotten while they run.
_orphans: list[subprocess.Popen[bytes]] = []
_alive: weakref.WeakSet[Collector] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _leave_orphans() -> None:
    # They drain beyond the end of this process, as promised; Popen need not warn of that.
    for process in (*_orphans, *(one._process for one in _alive)):
        if process is not None and process.poll() is None:
            process.returncode = 0
