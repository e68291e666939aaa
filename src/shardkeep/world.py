"""Rank and world size of this process, from its launcher or framework.

::

    World.detect
      SHARDKEEP_RANK, SHARDKEEP_WORLD_SIZE    take precedence
      a live framework                        torch.distributed, JAX, Horovod or Ray Train, if initialised
      the environment, compared               torchrun, Slurm, MPI, Horovod, JAX, Flux, TF_CONFIG, Vertex AI,
                                              TPU slices, SageMaker, Kubernetes
      none of these                           World(): one process, with a warning if there are signs of more

Launchers nest: Slurm or Kubernetes starts one process on each node, and torchrun or mpirun then starts one
for each GPU. Their numbers differ and both are correct; the inner ones are used. Any other difference is an
error, because a wrong rank loses or repeats records without a message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any

from shardkeep.errors import WorldError
from shardkeep.files.user_warning import warn_user
from shardkeep.launchers import (
    REMEDY,
    TORCHRUN,
    Claim,
    all_claims,
    explicit_claim,
    local_numbers,
    sign_of_several,
)
from shardkeep.siblings import count_workers

__all__ = ["REMEDY", "World", "checked_world", "refuse_late_rank", "warn_of_siblings"]


@dataclass(frozen=True, slots=True)
class World:
    """Rank of one process among all processes that read or write together.

    Parameters
    ----------
    rank, size : int
        Number of this process, from 0, and the number of processes.
    local_rank, local_size : int
        The same for the processes of this machine. If a launcher does not set `local_size`, it is the
        smallest that `local_rank` allows.
    source : str
        Origin of the numbers: "explicit" for a constructed World, else the source that `detect` used. Not
        compared.

    Raises
    ------
    WorldError
        The numbers do not satisfy ``0 <= rank < size`` and ``0 <= local_rank < local_size <= size``.

    Notes
    -----
    Frozen, hashable and picklable. A World that is passed to another process keeps the rank of the first one:
    create one World in each process.

    Examples
    --------
    >>> World(rank=3, size=8)
    World(rank=3, size=8, local_rank=0, local_size=1, source='explicit')
    >>> World.detect({"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"})
    World(rank=9, size=16, local_rank=1, local_size=8, source='torchrun')
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    source: str = field(default="explicit", compare=False)

    def __post_init__(self) -> None:
        for name in ("rank", "size", "local_rank", "local_size"):
            value = getattr(self, name)
            try:
                number = None if isinstance(value, bool) else index(value)
            except TypeError:
                number = None
            if number is None:
                raise WorldError(f"World: {name} must be an int, not {value!r}")
            object.__setattr__(self, name, number)
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise WorldError(
                f"World: rank={self.rank} is not valid for size={self.size}: ranks go from 0 to size - 1"
            )
        if not 0 <= self.local_rank < self.local_size <= self.size:
            raise WorldError(
                f"World: local_rank={self.local_rank} and local_size={self.local_size} are not valid for "
                f"size={self.size}: local ranks go from 0 to local_size - 1, and local_size is at most size"
            )

    @classmethod
    def detect(cls, env: Mapping[str, str] = os.environ) -> World:
        """Return the rank of this process from its launcher or framework.

        Parameters
        ----------
        env : mapping of str to str
            The environment. If it is `os.environ` itself, frameworks that this process has imported and
            initialised are queried too; no framework is imported.

        Returns
        -------
        World
            Its `source` is "explicit" (SHARDKEEP_RANK), "torch.distributed", "jax.distributed", "horovod",
            "ray.train", "torchrun", "slurm", "mpi", "jax", "flux", "TF_CONFIG", "vertex", "tpu", "sagemaker",
            "kubernetes", or "default" if there is none.

        Raises
        ------
        WorldError
            Two sources disagree, a variable is missing or not a number, or the process has a role that reads
            no data (parameter server or evaluator of TF_CONFIG).

        Warns
        -----
        RuntimeWarning
            Nothing names a rank, but this is one of several `multiprocessing` workers, a Ray actor, a Dask
            worker, or has a variable that only one of several processes has: each is rank 0 of 1.
        """
        is_real = env is os.environ
        env = {name: value.strip() for name, value in env.items() if value.strip()}
        explicit = explicit_claim(env)
        if explicit is not None:
            return _world(explicit)
        live = _live(env) if is_real else []
        if live:
            return _world(_innermost(live))
        claims, halves = all_claims(env)
        if not claims:
            for half in halves:
                if not half.weak:
                    raise WorldError(f"{half} is set but {half.missing} is not: set both, or {REMEDY}")
            world = cls(source="default")
            if is_real:
                sign = _live_sign() or sign_of_several(env)
                if sign is None:
                    warn_of_siblings(world)
                else:
                    _warn_once(
                        f"{sign} suggests that this is one of several processes, but its rank is unknown, so"
                        " it is rank 0 of 1 and would use all records: pass world=sk.World(rank, size), or"
                        " World(0, 1) if it is alone, or initialise the framework before"
                    )
            return world
        claim = _innermost(claims)
        for half in halves:
            known = {c.rank if half.is_rank else c.size for c in claims}
            if half.is_compared and half.value not in known:
                raise WorldError(f"{half} is set, but {claim}: unset it, or {REMEDY}")
        return _world(claim)


def checked_world(world: World | None) -> World:
    """Return the `world` that a caller passes, or the detected one for None.

    Raises
    ------
    WorldError
        It is something else, or nothing can be detected.
    """
    if world is None:
        return World.detect()
    if not isinstance(world, World):
        raise WorldError(f"world must be a World, such as World(rank=0, size=2), not {world!r:.80}")
    return world


def refuse_late_rank(world: World) -> None:
    """Raise if a framework has several processes, and was initialised after the default world was detected.

    Raises
    ------
    WorldError
        Every process would use all records.
    """
    if world.source != "default":
        return
    several = [claim for claim in _live(os.environ) if claim.size > 1]
    if several:
        raise WorldError(
            f"{several[0]}, but this World was detected before that, as rank 0 of 1, so that each process"
            " would use all records: make it afterwards, or pass world=sk.World(0, 1) if that is intended"
        )


def warn_of_siblings(world: World) -> None:
    """Warn, once in a process, if one of several workers of `multiprocessing` uses the default world."""
    if world.source != "default" or _warned_pid == os.getpid() or count_workers() < 2:
        return
    _warn_once(
        "no launcher was found, so this process is rank 0 of 1, as are the other workers of its parent, and"
        " each would use all records: pass world=sk.World(rank, size), World(0, 1) if all are independent, or"
        " use one Loader in the parent, which has its own threads"
    )


def _warn_once(message: str) -> None:
    global _warned_pid
    if _warned_pid != os.getpid():
        _warned_pid = os.getpid()
        warn_user(message)


_warned_pid = 0


def _world(claim: Claim) -> World:
    local_rank = claim.local_rank or 0
    local_size = claim.local_size or local_rank + 1
    try:
        return World(claim.rank, claim.size, local_rank, local_size, claim.source)
    except WorldError as error:
        raise WorldError(f"{claim}, which is not valid: {error}") from None


def _innermost(claims: list[Claim]) -> Claim:
    """Return the innermost of claims that are consistent."""
    for claim in claims:
        if all(claim.agrees(other) or claim.inside(other) for other in claims):
            # An agreeing source may have numbers that the first one lacks.
            same = [other for other in claims if claim.agrees(other)]
            whole = next((c for c in same if c.local_rank is not None and c.local_size is not None), claim)
            if claim.local_rank is None or claim.local_size is None:
                return Claim(
                    claim.source, claim.rank, claim.size, claim.evidence, whole.local_rank, whole.local_size
                )
            return claim
    for first in claims:
        for other in claims:
            if not (first.agrees(other) or first.inside(other) or other.inside(first)):
                raise WorldError(f"{first} but {other}: {REMEDY}")
    raise WorldError("; ".join(str(claim) for claim in claims) + f": they are not consistent; {REMEDY}")


# -- live frameworks --------------------------------------------------------------------------------


def _live(env: Mapping[str, str]) -> list[Claim]:
    claims = []
    torch: Any = sys.modules.get("torch.distributed")
    if _is_true(torch, "is_available") and _is_true(torch, "is_initialized"):
        rank, size = int(torch.get_rank()), int(torch.get_world_size())
        claims.append(_live_claim("torch.distributed", rank, size, *_local_numbers(env, rank, size)))
    # jax.process_index() would start the backends, after which jax.distributed.initialize() fails; the state
    # of the distributed client can be read without that.
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is not None:
        claims.append(_live_claim("jax.distributed", state.process_id, state.num_processes, None, None))
    for name in ("horovod.torch", "horovod.tensorflow", "horovod.tensorflow.keras", "horovod.keras"):
        horovod: Any = sys.modules.get(name)
        if _is_true(horovod, "is_initialized"):
            claims.append(
                _live_claim(
                    "horovod", horovod.rank(), horovod.size(), horovod.local_rank(), horovod.local_size()
                )
            )
            break
    train = _ray_train()
    return claims if train is None else [*claims, train]


def _local_numbers(env: Mapping[str, str], rank: int, size: int) -> tuple[int | None, int | None]:
    """Return the local rank and size of a process group, which has only the global ones."""
    local_rank, local_size = local_numbers(env, TORCHRUN)
    if local_rank is None and local_size is None:
        # A group made by hand: after it was made, all workers of this machine are running.
        workers = min(count_workers(), size)
        if workers > 1:
            return rank % workers, workers
    return local_rank, local_size


def _ray_train() -> Claim | None:
    train: Any = sys.modules.get("ray.train")
    if train is None or not _is_ray_worker():
        return None
    try:
        context = train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
        local = context.get_local_rank(), context.get_local_world_size()
    except Exception:  # The type differs between the versions of Ray; an actor without Train has no context.
        return None
    # Outside of a run, some versions return 0 of 1.
    return None if not size or size < 2 else _live_claim("ray.train", rank, size, *local)


def _is_ray_worker() -> bool:
    worker = getattr(sys.modules.get("ray._private.worker"), "global_worker", None)
    return getattr(worker, "mode", None) == 1  # WORKER_MODE: a task or an actor, not the driver


def _is_in_train_run() -> bool:
    try:
        return bool(sys.modules["ray.train"].get_context().get_experiment_name())
    except Exception:  # as in `_ray_train`
        return False


def _live_sign() -> str | None:
    if _is_ray_worker() and not _is_in_train_run():  # a run of one worker claims nothing
        return "a Ray task or actor"
    dask: Any = sys.modules.get("distributed.worker")
    if dask is not None:
        try:
            dask.get_worker()
        except ValueError:
            return None
        return "a Dask worker"
    return None


def _is_true(module: Any, question: str) -> bool:
    function = getattr(module, question, None)
    return bool(function()) if callable(function) else False


def _live_claim(source: str, rank: int, size: int, local_rank: int | None, local_size: int | None) -> Claim:
    return Claim(source, int(rank), int(size), "initialised in this process", local_rank, local_size)
