"""The worker processes: starting them, talking to them, noticing that one is gone, ending them.

Each worker is a fresh interpreter (nothing is forked, so no handle is shared) with one socket to the
parent. Nobody polls for deaths: the kernel closes a dead worker's socket, and the parent, which
waits on all of them at once, reads the end of it. The parent keeps no copy of a worker's end, and
the workers never see each other's, or that end would never come.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Generic, TypeVar

from shardkeep.demo import messages
from shardkeep.errors import DurabilityError, InternalError, ShardkeepError
from shardkeep.files.child_python import child_python

__all__ = ["Crew", "Heard"]

Message = TypeVar("Message")

_STOP_S = 5.0  # how long a worker may take to leave by itself before it is killed

# Matrix products of 16 rows gain nothing from threads, and four ranks would fight over the cores.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Heard(Generic[Message]):
    """What came of listening to some ranks.

    Attributes
    ----------
    said : dict
        The message of each rank that spoke, in the order of the ranks; a rank may have spoken and
        died since.
    dead : tuple of int
        Ranks whose socket has ended.
    """

    said: dict[int, Message]
    dead: tuple[int, ...]


class Crew:
    """All workers of one world; a context manager that leaves no process behind.

    Parameters
    ----------
    assignments : sequence of Assignment
        One for each rank, in order.

    Attributes
    ----------
    pids : tuple of int
        Of the ranks in order.
    """

    def __init__(self, assignments: Sequence[messages.Assignment]) -> None:
        self._connections: dict[int, Connection] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for order in assignments:
                self._start(order)
            for order in assignments:
                self.send(order.rank, order)
        except BaseException:
            self.kill_all()
            raise

    def _start(self, order: messages.Assignment) -> None:
        ours, theirs = Pipe()
        self._connections[order.rank] = ours
        with theirs:
            try:
                self._processes[order.rank] = subprocess.Popen(
                    child_python("shardkeep.demo.worker", f"main({theirs.fileno()})"),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **_ENVIRONMENT},
                    # Ctrl-C in the terminal goes to the parent alone.
                    start_new_session=True,
                )
            except OSError as error:
                raise DurabilityError(
                    f"cannot start worker {order.rank}: {error.strerror or error}"
                ) from error

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the ranks in order."""
        return tuple(self._processes[rank].pid for rank in sorted(self._processes))

    @property
    def size(self) -> int:
        """How many ranks the world has, dead ones included."""
        return len(self._processes)

    def send(self, rank: int, message: object) -> None:
        """Say something to one rank; a rank that is gone is noticed when it is next listened to."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connections[rank].send(message)

    def broadcast(self, message: object) -> None:
        """Say the same to every rank."""
        for rank in self._connections:
            self.send(rank, message)

    def gather(
        self, kind: type[Message], *, ranks: Iterable[int] | None = None, kill: int | None = None
    ) -> Heard[Message]:
        """Wait until every rank has said something of `kind` or is gone.

        Parameters
        ----------
        kind : type
            What each rank is expected to say next.
        ranks : iterable of int, optional
            Listen to these only.
        kill : int, optional
            Send SIGKILL to this rank as soon as its message is here, then go on waiting: its end
            is noticed the way that any other would be.

        Returns
        -------
        Heard
            Every rank listened to has spoken, is dead, or both.

        Raises
        ------
        ShardkeepError
            A rank sent an error instead: that error.
        """
        waiting = {self._connections[rank]: rank for rank in (self._connections if ranks is None else ranks)}
        heard: dict[int, Message] = {}
        dead: list[int] = []
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                rank = waiting[connection]
                try:
                    message: object = connection.recv()
                except (EOFError, OSError):  # OSError: it ended in the middle of a message
                    dead.append(rank)
                    del waiting[connection]
                    continue
                if rank in heard:
                    continue  # it was killed, and had gone on before the signal reached it
                if isinstance(message, messages.Failed):
                    raise _as_ours(rank, message)
                if not isinstance(message, kind):
                    raise InternalError(
                        f"worker {rank} said {type(message).__name__} instead of {kind.__name__}"
                    )
                heard[rank] = message
                if rank == kill:
                    self.kill(rank)
                else:
                    del waiting[connection]
        return Heard(dict(sorted(heard.items())), tuple(sorted(dead)))

    def kill(self, rank: int) -> None:
        """SIGKILL: the worker gets no chance to tidy up."""
        self._processes[rank].send_signal(signal.SIGKILL)

    def how_it_ended(self, rank: int) -> str:
        """Of a rank whose socket has ended, in words: "was killed by SIGSEGV"."""
        try:
            status = self._processes[rank].wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if status >= 0:
            return f"left with exit code {status}"
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"

    def stop(self) -> None:
        """End every worker that is still there: first by closing its socket, then by force.

        A worker that is told so leaves its file as it was at its last commit.
        """
        for connection in self._connections.values():
            connection.close()
        deadline = time.monotonic() + _STOP_S
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
        self.kill_all()

    def kill_all(self) -> None:
        """SIGKILL every worker and wait for the last one; harmless on those that have left."""
        for connection in self._connections.values():
            connection.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill_all()


def _as_ours(rank: int, failed: messages.Failed) -> Exception:
    error = failed.error
    if isinstance(error, OSError) and not isinstance(error, ShardkeepError):
        error = DurabilityError(f"worker {rank}: {error.filename or 'its file'}: {error.strerror or error}")
    error.__cause__ = RuntimeError(f"in worker {rank}:\n{failed.traceback}")
    return error
