"""Session hook of TensorFlow 1 training loops: fetched tensors in HDF5, in step with the checkpoints.

`tf.compat.v1.train.MonitoredTrainingSession` and `tf.estimator.Estimator` call it before and after each
``session.run``.

1. `RunHook.after_run` appends what the step has fetched, and moves the loader over the batch of that step.
2. `RunHook.before_run` of the next step commits, if the chief has written a checkpoint since, or enough time
   has passed. All hooks of the last step have run by then, also the one that saves; so in a single process
   the commit has the rows up to the checkpoint and no other.
3. `RunHook.after_create_session` reads the global step that the session came back to, and rolls back to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError
from shardkeep.hdf5 import WorkerFile
from shardkeep.loader import Loader, Place

if TYPE_CHECKING:
    import tensorflow as tf

    from shardkeep.hdf5 import Client
else:
    tf = import_extra("tensorflow", "shardkeep.adapters.tensorflow")

__all__ = ["RunHook"]

# Marks of one commit; a rollback of asynchronous workers loses at most the rows between two of them.
_MARKS = 5


class RunHook(tf.compat.v1.train.SessionRunHook):
    """Session hook that writes fetched tensors to HDF5, and commits and rolls back with the checkpoints.

    Parameters
    ----------
    out : WorkerFile or Client
        File of this worker, or a connection to a collector (`shardkeep.hdf5.connect`). Only this hook may
        write to it; the program closes it after the session.
    fetches : mapping of str to Tensor, or callable
        Tensors, or their names, by the name of the dataset. The leading axis counts rows; a scalar is one
        row. A callable returns the mapping when the graph is complete, as Estimator needs it.
    checkpoint_dir : str or os.PathLike, optional
        Folder of the session's checkpoints, which is only read. Without it, or where the folder is not
        visible to this worker, commits depend on time only.
    data : ShardkeepDataset or Loader, optional
        The dataset of `to_dataset` that feeds the session, with no operation that reads ahead after it; or,
        with `place`, the loader of this rank, for a dataset of ``loader.read_ahead()``. Its state and receipt
        are committed with the rows. After a restart it continues after the last row that is left.
    place : Tensor, list of Tensor, or callable, optional
        ``place.to_array()`` of the batch, from the same element of the dataset as the batch; the hook moves
        the loader over it after the step. A list has one for each replica, in their order; an empty one is
        left out.
    commit_secs : float
        Most time between two commits, in seconds: a worker that is killed loses the rows of this time.

    Raises
    ------
    PlanError
        A loader without `place`, or `data` with a collector.

    Notes
    -----
    **Restart.** The session restores a checkpoint, or joins parameter servers that live on. Its global step
    decides: rows after that step are removed, and the loader returns to the first batch without rows.
    Batches whose rows were not committed are trained on again, so that the file has each record once. A
    session without a checkpoint begins at step 0 and removes all rows of this rank: a new training needs a
    new folder for both.

    **A single process.** A commit after each checkpoint has the rows up to its step and no others.

    **Parameter servers.** Workers are not in step, so each of them keeps its own state in its own commits. A
    worker that was killed returns to the step of the servers, and loses the rows since its last commit;
    their batches are trained on again. When all return to a checkpoint, a worker loses in addition at most
    the rows of ``commit_secs / 5`` before it. A row is kept only if its update is certainly in the
    checkpoint.

    **A collector** removes no rows. They wait in memory until a checkpoint has their step, and are durable
    when the next ``session.run`` begins. It keeps no state of a loader.

    The step of a row is read from the global step after it, with each commit or mark rather than each step.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> folder = tempfile.mkdtemp()
    >>> with tf.Graph().as_default(), sk.hdf5.WorkerFile(folder + "/run", sk.World(0, 1)) as out:
    ...     step = tf.compat.v1.train.get_or_create_global_step()
    ...     train = tf.compat.v1.assign_add(step, 1)
    ...     hook = RunHook(out, {"double": tf.cast(step, tf.int64) * 2}, folder + "/log")
    ...     stop = tf.compat.v1.train.StopAtStepHook(last_step=3)
    ...     with tf.compat.v1.train.MonitoredTrainingSession(
    ...         checkpoint_dir=folder + "/log", hooks=[stop, hook]
    ...     ) as session:
    ...         while not session.should_stop():
    ...             _ = session.run(train)
    >>> out.committed_step, out.committed_rows
    (3, {'double': 3})
    """

    def __init__(
        self,
        out: WorkerFile | Client,
        fetches: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
        checkpoint_dir: str | os.PathLike[str] | None = None,
        *,
        data: Any = None,
        place: Any = None,
        commit_secs: float = 10.0,
    ) -> None:
        if isinstance(data, Loader) != (place is not None):
            raise PlanError(
                "place= is the place of each batch of a Loader: pass data=loader with place=, or data= the"
                " dataset of to_dataset(loader) without it"
            )
        loader = data if data is None or isinstance(data, Loader) else data.loader
        self._rows: _FileRows | _CollectorRows
        if isinstance(out, WorkerFile):
            self._rows = _FileRows(out, loader)
        elif data is None:
            self._rows = _CollectorRows(out)
        else:
            raise PlanError("data= needs a WorkerFile: a collector keeps no state to continue from")
        self._chosen, self._place = fetches, place
        self._checkpoint_dir = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
        self._data = data
        self._begin: Any = None if loader is None else loader.state_dict()
        self._commit_secs = commit_secs
        self._fetches: dict[str, Any] = {}

    def begin(self) -> None:
        """Find the tensors in the graph, which is complete."""
        self._global_step = tf.compat.v1.train.get_global_step()
        if self._global_step is None:
            raise PlanError(
                "RunHook needs a global step: call tf.compat.v1.train.get_or_create_global_step()"
            )
        self._fetches = {"rows": dict(_called(self._chosen))}
        if self._place is not None:
            place = _called(self._place)
            self._fetches["places"] = list(place) if isinstance(place, (list, tuple)) else [place]

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Roll back to the global step of a new session; called again if TensorFlow replaces it.

        Parameters
        ----------
        session : tf.compat.v1.Session
        coord : tf.train.Coordinator
        """
        self._rows.rollback(int(session.run(self._global_step)), self._latest_checkpoint)
        if isinstance(self._data, Loader):
            self._data.load_state_dict(self._rows.state or self._begin)
        elif self._data is not None:
            self._data.deserialize(json.dumps(self._rows.state or self._begin).encode())
        self._seen = self._checkpoint_stamp()
        self._next_commit = time.monotonic() + self._commit_secs
        self._next_mark = time.monotonic() + self._commit_secs / _MARKS

    def before_run(self, run_context: Any) -> Any:
        """Commit the steps so far if a checkpoint was written or enough time has passed.

        Parameters
        ----------
        run_context : tf.compat.v1.train.SessionRunContext

        Returns
        -------
        tf.compat.v1.train.SessionRunArgs
            The tensors to fetch.
        """
        now, stamp = time.monotonic(), self._checkpoint_stamp()
        if stamp != self._seen or now >= self._next_mark:
            step = int(run_context.session.run(self._global_step))
            self._rows.mark(step)
            self._next_mark = now + self._commit_secs / _MARKS
            if stamp != self._seen or now >= self._next_commit:
                self._rows.commit(step, self._latest_checkpoint)
                self._next_commit = now + self._commit_secs
            self._seen = stamp
        return tf.compat.v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Append the rows of a step, and move the loader over its batch.

        Parameters
        ----------
        run_context : tf.compat.v1.train.SessionRunContext
        run_values : tf.compat.v1.train.SessionRunValues
        """
        fetched = run_values.results
        for name, rows in fetched["rows"].items():
            # A row as an array takes the short way through `WorkerFile.append`.
            self._rows.append(name, rows.reshape(1) if isinstance(rows, np.generic) else rows)
        for place in fetched.get("places", ()):
            if np.size(place):
                self._data.consume(Place.from_array(place))

    def end(self, session: Any) -> None:
        """Commit the last rows; TensorFlow does not call it after an error.

        Parameters
        ----------
        session : tf.compat.v1.Session
        """
        self._rows.end(int(session.run(self._global_step)))

    def _checkpoint_stamp(self) -> tuple[int, ...] | None:
        """Return what changes with each checkpoint, in a microsecond; None for folders of object stores."""
        if self._checkpoint_dir is None:
            return None
        try:
            found = os.stat(os.path.join(self._checkpoint_dir, "checkpoint"))
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _latest_checkpoint(self) -> int:
        if self._checkpoint_dir is None:
            return sys.maxsize  # no step is made again
        number = (tf.train.latest_checkpoint(self._checkpoint_dir) or "").rpartition("-")[2]
        return int(number) if number.isdecimal() else -1


class _FileRows:
    """Rows of a worker file, with state and receipt of a loader."""

    def __init__(self, out: WorkerFile, loader: Loader | None) -> None:
        self._out = out
        self._loader = loader
        self.append = out.append

    @property
    def state(self) -> dict[str, Any] | None:
        return self._out.committed_state

    def mark(self, step: int) -> None:
        if self._is_new(step):
            self._out.mark(step, **self._progress())

    def commit(self, step: int, latest_checkpoint: Callable[[], int]) -> None:
        if self._is_new(step):
            self._out.commit(step=step, **self._progress())

    def rollback(self, step: int, latest_checkpoint: Callable[[], int]) -> None:
        self._out.rollback(step=step)

    def end(self, step: int) -> None:
        if self._is_new(step) or any(self._out.uncommitted_rows.values()):
            self._out.commit(step=step, **self._progress())
        self._out.finish()

    def _is_new(self, step: int) -> bool:
        return self._out.committed_step is None or step > self._out.committed_step

    def _progress(self) -> dict[str, Any]:
        loader = self._loader
        return {} if loader is None else {"receipt": loader.receipt(), "state": loader.state_dict()}


class _CollectorRows:
    """Rows that wait in memory until a checkpoint has their step, since a collector removes none."""

    state = None

    def __init__(self, out: Client) -> None:
        self._out = out
        self._new: list[tuple[str, Any]] = []
        self._marked: list[tuple[int, list[tuple[str, Any]]]] = []

    def append(self, name: str, rows: Any) -> None:
        self._new.append((name, rows))

    def mark(self, step: int) -> None:
        if self._new:
            self._marked.append((step, self._new))
            self._new = []

    def commit(self, step: int, latest_checkpoint: Callable[[], int]) -> None:
        self._send(latest_checkpoint())

    def rollback(self, step: int, latest_checkpoint: Callable[[], int]) -> None:
        self._send(min(step, latest_checkpoint()))
        self._new, self._marked = [], []

    def end(self, step: int) -> None:
        self.mark(step)
        self._send(step)

    def _send(self, step: int) -> None:
        while self._marked and self._marked[0][0] <= step:
            for name, rows in self._marked.pop(0)[1]:
                self._out.append(name, rows)
        self._out.flush()


def _called(value: Any) -> Any:
    return value() if callable(value) else value
