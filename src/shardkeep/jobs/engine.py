"""Engines that run the tasks of jobs on many machines: Dask, Ray and MPI, each as an `Executor`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Literal, get_args

from shardkeep._extras import import_extra
from shardkeep.errors import EngineError, PlanError

__all__ = ["EngineName", "engine"]

EngineName = Literal["local", "dask", "ray", "mpi"]


@contextlib.contextmanager
def engine(name: EngineName, *, address: str | None = None) -> Iterator[Executor | None]:
    """Open an engine for the ``executor`` of `verify`, `split` and other jobs, and close it at the end.

    Parameters
    ----------
    name : {"local", "dask", "ray", "mpi"}
        "local": threads of this process. "dask": a Dask cluster (extra ``shardkeep[dask]``). "ray": a Ray
        cluster (``shardkeep[ray]``). "mpi": the processes of ``mpirun`` (``shardkeep[mpi]``), of which rank 0
        runs the program and the others its tasks.
    address : str, optional
        Of Dask the address of the scheduler or the path of its ``--scheduler-file``, of Ray the address of
        the cluster. By default that of the configuration of Dask or Ray, or a new cluster on this machine.

    Yields
    ------
    Executor or None
        None for "local". Any other `concurrent.futures.Executor` can be passed to the jobs as well.

    Raises
    ------
    EngineError
        The cluster cannot be reached.
    MissingExtraError
        The package of the engine is not installed.
    PlanError
        The name is not valid; the engine has no address; "mpi" was started without ``mpirun``.
    SystemExit
        In the processes of "mpi" except rank 0, when their work is done.

    Notes
    -----
    All workers must see the files under the same paths, and have the same version of Shardkeep. Dask and Ray
    run a task again, on another worker, if its worker dies; the result is the same.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep import tfrecord, verify
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with tfrecord.Writer(path) as writer:
    ...     writer.write(b"one")
    >>> with engine("local") as executor:
    ...     verify(path, executor=executor).ok
    True
    """
    if name not in get_args(EngineName):
        raise PlanError(f"engine must be one of {', '.join(get_args(EngineName))}, not {name!r}")
    if address is not None and name not in ("dask", "ray"):
        raise PlanError(f"address={address!r} is not valid for the engine {name!r}: leave it out")
    if name == "local":
        yield None
        return
    opened = {"dask": _dask, "ray": _ray}[name](address) if name != "mpi" else _mpi()
    with opened as executor:
        yield executor


@contextlib.contextmanager
def _dask(address: str | None) -> Iterator[Executor]:
    distributed = import_extra("distributed", 'engine "dask"')
    where = {"scheduler_file": address} if address and os.path.isfile(address) else {"address": address}
    try:
        # The last two are for a new cluster; port 8787, the default, may be that of another one.
        client = distributed.Client(
            **where, set_as_default=False, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        )
    except (OSError, ValueError) as error:
        raise _not_reached("a Dask scheduler", address, error) from error
    with client, client.get_executor(pure=False) as executor:
        executor.num_workers = len(client.nthreads())
        yield executor


@contextlib.contextmanager
def _ray(address: str | None) -> Iterator[Executor]:
    ray = import_extra("ray", 'engine "ray"')
    if ray.is_initialized():
        yield _RayExecutor(ray)
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_reached("a Ray cluster", address, error) from error
    try:
        yield _RayExecutor(ray)
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _mpi() -> Iterator[Executor]:
    futures = import_extra("mpi4py.futures", 'engine "mpi"')
    world = import_extra("mpi4py.MPI", 'engine "mpi"').COMM_WORLD
    if world.Get_size() == 1:
        raise PlanError(
            'engine "mpi" needs at least two processes: mpirun -n 3 shardkeep ... --engine mpi, or with Slurm'
            " srun --mpi=pmix -n 3 shardkeep ..."
        )
    with futures.MPICommExecutor(world, root=0) as executor:
        if executor is not None:
            yield executor
    if executor is None:
        raise SystemExit(0)


def _not_reached(what: str, address: str | None, error: Exception) -> EngineError:
    there = f" at {address}" if address else ""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return EngineError(f"cannot reach {what}{there} ({reason:.300}); start it, or pass another address=")


class _RayExecutor(Executor):
    """Executor whose calls are tasks of Ray, which runs them again if their worker dies."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._call = ray.remote(max_retries=3)(_call)
        self.num_workers = int(ray.cluster_resources().get("CPU", 1))

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Start a task; its future is cancelled together with it."""
        reference = self._call.remote(function, arguments, options)
        future: Future[Any] = reference.future()

        def end(done: Future[Any]) -> None:
            if done.cancelled():
                self._ray.cancel(reference)

        future.add_done_callback(end)
        return future


def _call(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return function(*arguments, **options)
