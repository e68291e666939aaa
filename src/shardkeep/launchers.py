"""Environment variables of each launcher, with rank and world size.

One function for each launcher; `World.detect` compares what they return.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shardkeep.errors import WorldError

__all__ = [
    "REMEDY",
    "TORCHRUN",
    "Claim",
    "Half",
    "all_claims",
    "explicit_claim",
    "local_numbers",
    "sign_of_several",
]

REMEDY = "pass World(rank=..., size=...), or set SHARDKEEP_RANK and SHARDKEEP_WORLD_SIZE"


@dataclass(frozen=True, slots=True)
class Claim:
    """Rank and world size of this process from one source."""

    source: str
    rank: int
    size: int
    evidence: str
    local_rank: int | None = None
    local_size: int | None = None
    # True for a launcher that starts several processes from one process of another launcher.
    nests: bool = False
    # True for a launcher of machines: one of its processes may be the parent of any number.
    manages: bool = False

    def __str__(self) -> str:
        return f"{self.source} says rank {self.rank} of {self.size} ({self.evidence})"

    def inside(self, outer: Claim) -> bool:
        """Return True if one of the processes that `outer` counts can have started this process."""
        if outer.manages and outer.size == 1 and self.size > 1:
            return True
        if not self.nests or self.local_size is None or self.size <= outer.size:
            return False
        if outer.manages:
            # Nodes may differ, but each process of `outer` has started at least one. A launcher with all of
            # its processes here does not count those of `outer` on other nodes: a missing --nnodes.
            return self.size >= self.local_size + outer.size - 1
        return self.size == self.local_size * outer.size

    def agrees(self, other: Claim) -> bool:
        """Return True if both have the same rank and size."""
        return (self.rank, self.size) == (other.rank, other.size)


class Half(NamedTuple):
    """One variable of a pair without the other."""

    name: str
    value: int
    missing: str
    is_rank: bool
    # True if this variable alone is not an error.
    weak: bool = False
    # True if the value must be consistent with other sources.
    is_compared: bool = False

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class _Names(NamedTuple):
    source: str
    rank: str
    size: str
    local_ranks: tuple[str, ...]
    local_sizes: tuple[str, ...]
    weak: bool = False


_EXPLICIT = _Names(
    "explicit",
    "SHARDKEEP_RANK",
    "SHARDKEEP_WORLD_SIZE",
    ("SHARDKEEP_LOCAL_RANK",),
    ("SHARDKEEP_LOCAL_WORLD_SIZE",),
)
# LOCAL_SIZE is DeepSpeed's name for LOCAL_WORLD_SIZE.
TORCHRUN = _Names("torchrun", "RANK", "WORLD_SIZE", ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"))
_MPI = (
    _Names(
        "mpi",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Names(
        "mpi",
        "MV2_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    # MPICH, Intel MPI and Cray PALS; weak, because some Slurm and Cray set-ups leave PMI_RANK without a size.
    _Names(
        "mpi",
        "PMI_RANK",
        "PMI_SIZE",
        ("MPI_LOCALRANKID", "PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        weak=True,
    ),
)
# Set by Kubeflow Trainer and by scripts that pass them to jax.distributed.initialize, which does not read
# them itself; weak, because some use other names for one of them.
_JAX = _Names("jax", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", (), (), weak=True)
_HOROVOD = _Names("horovod", "HOROVOD_RANK", "HOROVOD_SIZE", ("HOROVOD_LOCAL_RANK",), ("HOROVOD_LOCAL_SIZE",))


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    if not text:
        return None
    if not _is_number(text):
        raise WorldError(
            f"{name}={text[:40]!r} must be an integer, 0 or more: correct or unset it, or {REMEDY}"
        )
    return int(text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,9}", text) is not None


def local_numbers(env: Mapping[str, str], names: _Names) -> tuple[int | None, int | None]:
    """Return the rank and the number of processes on this machine, each None if it is not set."""
    return _first_number(env, names.local_ranks), _first_number(env, names.local_sizes)


def _first_number(env: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((number for name in names if (number := _number(env, name)) is not None), None)


def _pair(env: Mapping[str, str], names: _Names) -> Claim | Half | None:
    rank, size = _number(env, names.rank), _number(env, names.size)
    if rank is None:
        if size is None:
            return None
        return Half(names.size, size, names.rank, False, names.weak, not names.weak)
    if size is None:
        return Half(names.rank, rank, names.size, True, names.weak, not names.weak)
    local_rank, local_size = local_numbers(env, names)
    evidence = f"{names.rank}={rank}, {names.size}={size}"
    return Claim(names.source, rank, size, evidence, local_rank, local_size, nests=names.source != "explicit")


def explicit_claim(env: Mapping[str, str]) -> Claim | None:
    """Return the rank and size that the user has set for Shardkeep, or None."""
    found = _pair(env, _EXPLICIT)
    if isinstance(found, Half):
        raise WorldError(f"{found} is set but {found.missing} is not: set both or neither")
    return found


def all_claims(env: Mapping[str, str]) -> tuple[list[Claim], list[Half]]:
    """Return all sources in the order of preference, and variables without their counterpart."""
    _refuse_launcher(env)
    torchrun = _pair(env, TORCHRUN)
    found = [
        torchrun,
        _slurm(env),
        *(_pair(env, names) for names in _MPI),
        _pair(env, _HOROVOD),
        _pair(env, _JAX),
        _flux(env),
        _tf_config(env),
        _vertex(env),
        _tpu(env),
        _sagemaker(env),
        _kubernetes(env),
    ]
    claims = [one for one in found if isinstance(one, Claim)]
    return claims, [one for one in found if isinstance(one, Half)]


def sign_of_several(env: Mapping[str, str]) -> str | None:
    """Return a variable that only one of several processes has, though no rank can be read from it."""
    names = ["PMIX_RANK", "PMI_RANK", "LOCAL_RANK", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"]
    if env.get("TPU_WORKER_ID") != "0":  # also set on a single host
        names.append("TPU_WORKER_ID")
    return next((f"{name}={env[name][:80]}" for name in names if env.get(name)), None)


def _refuse_launcher(env: Mapping[str, str]) -> None:
    """Raise if the variables are those of a pod in which torchrun starts several processes.

    Kubeflow's PyTorchJob sets RANK to the number of the pod, and WORLD_SIZE to the number of pods or of
    processes depending on its version; torchrun replaces both in the processes that it starts.
    """
    processes = env.get("PET_NPROC_PER_NODE", "")
    inside = any(env.get(name) for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK"))
    if _is_number(processes) and int(processes) > 1 and not inside:
        raise WorldError(
            f"PET_NPROC_PER_NODE={processes} says that torchrun starts {processes} processes in this pod, "
            f"but LOCAL_RANK is not set, so this is not one of them: start it with torchrun, or {REMEDY}"
        )


def _slurm(env: Mapping[str, str]) -> Claim | Half | None:
    rank = _number(env, "SLURM_PROCID")
    sizes = [(name, _number(env, name)) for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")]
    name, size = next(((name, size) for name, size in sizes if size is not None), ("SLURM_NTASKS", None))
    if rank is None:
        # The shell of salloc has SLURM_NTASKS but is not a task.
        return None
    step = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID")
    if step in ("4294967290", "4294967291"):
        # SLURM_INTERACTIVE_STEP and SLURM_BATCH_SCRIPT of slurm.h: a shell, whatever was allocated.
        return None
    in_step = step or env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_STEP_NODELIST")
    if rank == 0 and not in_step and (env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID")):
        # A batch script: SLURM_PROCID=0 with all of the job's SLURM_NTASKS, but srun has not run.
        return None
    if size is None:
        return Half("SLURM_PROCID", rank, "SLURM_NTASKS", True)
    local_rank = _number(env, "SLURM_LOCALID")
    local_size = _tasks_here(env)
    if local_size is not None and local_rank is not None and not local_rank < local_size <= size:
        local_size = None
    evidence = f"SLURM_PROCID={rank}, {name}={size}"
    return Claim("slurm", rank, size, evidence, local_rank, local_size, manages=True)


def _tasks_here(env: Mapping[str, str]) -> int | None:
    """Read this node's entry of a list such as ``8(x2),4``."""
    node = _number(env, "SLURM_NODEID")
    text = env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or ""
    if node is None or len(text) > 10_000:
        return None
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,6})(?:\(x(\d{1,6})\))?", part.strip())
        if found is None:
            return None
        node -= int(found[2] or 1)
        if node < 0:
            return int(found[1])
    return None


def _flux(env: Mapping[str, str]) -> Claim | None:
    rank, size = _number(env, "FLUX_TASK_RANK"), _number(env, "FLUX_JOB_SIZE")
    if rank is None or size is None:
        return None
    local_rank, nodes = _number(env, "FLUX_TASK_LOCAL_ID"), _number(env, "FLUX_JOB_NNODES")
    local_size = None
    if nodes and local_rank is not None:
        local_size = max(-(-size // nodes), local_rank + 1)
    evidence = f"FLUX_TASK_RANK={rank}, FLUX_JOB_SIZE={size}"
    return Claim("flux", rank, size, evidence, local_rank, local_size, manages=True)


def _tpu(env: Mapping[str, str]) -> Claim | None:
    """Return the number of this host among those of a TPU slice, or of several slices."""
    worker, hosts = _number(env, "TPU_WORKER_ID"), env.get("TPU_WORKER_HOSTNAMES", "")
    if worker is None or not hosts:
        return None
    number_of_hosts = hosts.count(",") + 1
    evidence = f"TPU_WORKER_ID={worker}, {number_of_hosts} in TPU_WORKER_HOSTNAMES"
    if worker >= number_of_hosts:
        raise WorldError(f"{evidence}: worker numbers go from 0; correct or unset them, or {REMEDY}")
    rank, size = worker, number_of_hosts
    part, slices = _number(env, "MEGASCALE_SLICE_ID"), _number(env, "MEGASCALE_NUM_SLICES")
    if part is not None and slices is not None:
        rank, size = part * number_of_hosts + worker, slices * number_of_hosts
        evidence += f", MEGASCALE_SLICE_ID={part}, MEGASCALE_NUM_SLICES={slices}"
    return Claim("tpu", rank, size, evidence, manages=True)


def _vertex(env: Mapping[str, str]) -> Claim | None:
    """Read the variable of Vertex AI, whose first two pools are the primary and the workers."""
    text = env.get("CLUSTER_SPEC", "")
    if "workerpool0" not in text:
        return None
    try:
        config = json.loads(text)
        cluster, kind, number = config["cluster"], config["task"]["type"], int(config["task"]["index"])
        sizes = [len(cluster.get(f"workerpool{pool}") or []) for pool in range(2)]
        pool = int(str(kind).removeprefix("workerpool"))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WorldError(
            f"CLUSTER_SPEC={text[:80]!r} has no cluster and task as Vertex AI sets them: correct or unset it,"
            f" or {REMEDY}"
        ) from None
    evidence = f"CLUSTER_SPEC task {kind} {number}"
    if pool > 1:
        raise WorldError(
            f"{evidence}: the third and fourth pool are parameter servers and evaluators, which read no"
            f" training data; if they train, {REMEDY}"
        )
    if not 0 <= number < sizes[pool]:
        raise WorldError(f"{evidence} is not in its cluster: correct it, or {REMEDY}")
    return Claim("vertex", pool * sizes[0] + number, sum(sizes), evidence, manages=True)


def _tf_config(env: Mapping[str, str]) -> Claim | None:
    text = env.get("TF_CONFIG", "")
    if not text:
        return None
    wrong = f"TF_CONFIG={text[:80]!r}"
    try:
        config = json.loads(text)
    except ValueError:
        raise WorldError(f"{wrong} is not JSON: correct or unset it, or {REMEDY}") from None
    cluster = config.get("cluster") if isinstance(config, dict) else None
    if not cluster:
        return None
    task = config.get("task")
    if not isinstance(cluster, dict) or not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise WorldError(f"{wrong} has a cluster but no task with type and index: add it, or {REMEDY}")
    kind = str(task["type"])
    if kind in ("ps", "evaluator"):
        raise WorldError(
            f"TF_CONFIG says that this process is a {kind}, which reads no training data: start no loader "
            "here, or pass World() to read a separate data set"
        )
    lists = {role: cluster.get(role) or [] for role in ("chief", "master", "worker")}
    if not all(isinstance(addresses, list) for addresses in lists.values()):
        raise WorldError(
            f"{wrong} has a cluster whose roles are not lists of addresses: correct it, or {REMEDY}"
        )
    members = {role: len(addresses) for role, addresses in lists.items()}
    number = str(task["index"])
    if not _is_number(number) or int(number) >= members.get(kind, 0):
        raise WorldError(
            f"TF_CONFIG has no task {kind} {number[:20]} in its cluster: correct it, or {REMEDY}"
        )
    rank = int(number)
    for role, number_of in members.items():
        if role == kind:
            break
        rank += number_of
    return Claim("TF_CONFIG", rank, sum(members.values()), f"TF_CONFIG task {kind} {number}")


def _sagemaker(env: Mapping[str, str]) -> Claim | None:
    text, current = env.get("SM_HOSTS", ""), env.get("SM_CURRENT_HOST", "")
    if not text and not current:
        return None
    if not text or not current:
        there, missing = ("SM_HOSTS", "SM_CURRENT_HOST") if text else ("SM_CURRENT_HOST", "SM_HOSTS")
        raise WorldError(f"{there} is set but {missing} is not: set both, or {REMEDY}")
    try:
        hosts = json.loads(text)
    except ValueError:
        hosts = None
    if not isinstance(hosts, list) or current not in hosts:
        raise WorldError(
            f"SM_CURRENT_HOST={current[:40]} is not in SM_HOSTS={text[:80]}: correct them, or {REMEDY}"
        )
    evidence = f"SM_CURRENT_HOST={current}, {len(hosts)} in SM_HOSTS"
    return Claim("sagemaker", hosts.index(current), len(hosts), evidence, manages=True)


def _kubernetes(env: Mapping[str, str]) -> Claim | Half | None:
    rank = _number(env, "JOB_COMPLETION_INDEX")
    if rank is None:
        return None
    names = ["JOB_COMPLETIONS", "PET_NNODES"]
    if not env.get("RANK"):
        # A pod template often sets WORLD_SIZE as a constant, and the index is the rank.
        names.insert(1, "WORLD_SIZE")
    for name in names:
        if _is_number(env.get(name, "")):
            size = int(env[name])
            evidence = f"JOB_COMPLETION_INDEX={rank}, {name}={size}"
            return Claim("kubernetes", rank, size, evidence, manages=True)
    # Kubernetes sets no size; another source may have it.
    return Half("JOB_COMPLETION_INDEX", rank, "WORLD_SIZE (the Job's completions)", True)
