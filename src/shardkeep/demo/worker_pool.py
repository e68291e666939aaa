"""Worker processes of the demo: start, messages, detection of deaths, stop.

Each worker is a fresh interpreter (nothing is forked, so no handle is shared) with one socket to the parent.
The kernel closes the socket of a dead worker, and the parent, which waits on all sockets at once, reads its
end. This works only while the worker has the sole copy of its end: the parent closes its copy, and no other
worker inherits one.
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
from typing import Generic, TypeVar

from shardkeep.demo import messages
from shardkeep.errors import DurabilityError, InternalError
from shardkeep.files.child_python import child_python

__all__ = ["PollResult", "WorkerPool"]

Message = TypeVar("Message")

_STOP_TIMEOUT_S = 5.0  # then a worker that has not exited is killed

# Matrix products of 16 rows gain nothing from threads, and four ranks would compete for the cores.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class PollResult(Generic[Message]):
    """The messages of some ranks, and the ranks that died.

    Attributes
    ----------
    messages : dict
        The message of each rank that sent one, in the order of the ranks. Such a rank may be dead as well.
    dead : tuple of int
        Ranks whose socket has ended.
    """

    messages: dict[int, Message]
    dead: tuple[int, ...]


class WorkerPool:
    """All workers of one world; a context manager that leaves no process running.

    Parameters
    ----------
    assignments : sequence of Assignment
        One assignment for each rank, in the order of the ranks.

    Attributes
    ----------
    pids : tuple of int
        Process ids in the order of the ranks.
    """

    def __init__(self, assignments: Sequence[messages.Assignment]) -> None:
        self._connections: dict[int, Connection] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        try:
            for assignment in assignments:
                self._start(assignment.rank)
            for assignment in assignments:
                self.send(assignment.rank, assignment)
        except BaseException:
            self.kill_all()
            raise

    def _start(self, rank: int) -> None:
        parent_end, worker_end = Pipe()
        self._connections[rank] = parent_end
        with worker_end:
            try:
                self._processes[rank] = subprocess.Popen(
                    child_python("shardkeep.demo.worker", f"main({worker_end.fileno()})"),
                    pass_fds=[worker_end.fileno()],
                    stdin=subprocess.DEVNULL,
                    env={**os.environ, **_ENVIRONMENT},
                    # Ctrl-C in the terminal goes to the parent alone.
                    start_new_session=True,
                )
            except OSError as error:
                raise DurabilityError(f"cannot start worker {rank}: {error.strerror or error}") from error

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids in the order of the ranks."""
        return tuple(self._processes[rank].pid for rank in sorted(self._processes))

    @property
    def size(self) -> int:
        """Number of ranks of the world, dead ones included."""
        return len(self._processes)

    def send(self, rank: int, message: object) -> None:
        """Send a message to one rank; the next `gather` reports a rank that is dead."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connections[rank].send(message)

    def broadcast(self, message: object) -> None:
        """Send the same message to every rank."""
        for rank in self._connections:
            self.send(rank, message)

    def gather(
        self, kind: type[Message], *, ranks: Iterable[int] | None = None, kill: int | None = None
    ) -> PollResult[Message]:
        """Wait until every rank has sent a message of type `kind` or is dead.

        Parameters
        ----------
        kind : type
            Type of the next message of each rank.
        ranks : iterable of int, optional
            Ranks to wait for; all by default.
        kill : int, optional
            Rank that gets SIGKILL as soon as its message has arrived. The call then waits for the end of its
            socket, as for any other death.

        Returns
        -------
        PollResult
            Every rank has sent its message, is dead, or both.

        Raises
        ------
        ShardkeepError, OSError
            A rank sent an error instead; that error is raised.
        """
        waiting = {self._connections[rank]: rank for rank in (self._connections if ranks is None else ranks)}
        received: dict[int, Message] = {}
        dead: list[int] = []
        while waiting:
            for connection in wait(list(waiting)):
                assert isinstance(connection, Connection)
                rank = waiting[connection]
                try:
                    message: object = connection.recv()
                except (EOFError, OSError):  # OSError: the worker died in the middle of a message
                    dead.append(rank)
                    del waiting[connection]
                    continue
                if rank in received:
                    continue  # sent by the killed rank before the signal reached it
                if isinstance(message, messages.Failed):
                    raise _error_of_worker(rank, message)
                if not isinstance(message, kind):
                    raise InternalError(
                        f"worker {rank} sent {type(message).__name__} instead of {kind.__name__}"
                    )
                received[rank] = message
                if rank == kill:
                    self.kill(rank)
                else:
                    del waiting[connection]
        return PollResult(dict(sorted(received.items())), tuple(sorted(dead)))

    def kill(self, rank: int) -> None:
        """Send SIGKILL to one worker."""
        self._processes[rank].send_signal(signal.SIGKILL)

    def describe_exit(self, rank: int) -> str:
        """Return how a rank whose socket has ended exited, such as "was killed by SIGSEGV"."""
        try:
            status = self._processes[rank].wait(timeout=_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        if status >= 0:
            return f"left with exit code {status}"
        return f"was killed by {signal.Signals(-status).name}"

    def stop(self) -> None:
        """End all workers: close their sockets, wait, and kill those that have not exited.

        A worker whose socket ends exits without a commit, so its file has the rows of its last commit.
        """
        for connection in self._connections.values():
            connection.close()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
        self.kill_all()

    def kill_all(self) -> None:
        """Send SIGKILL to every worker that still runs, and wait for all of them."""
        for connection in self._connections.values():
            connection.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.stop()
        else:
            self.kill_all()


def _error_of_worker(rank: int, failed: messages.Failed) -> Exception:
    failed.error.__cause__ = RuntimeError(f"in worker {rank}:\n{failed.traceback}")
    return failed.error
