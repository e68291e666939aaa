"""Ranks from the variables of launchers, single and nested (`world` and `launchers`).

Covers `shardkeep.launchers`.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from shardkeep.errors import WorldError
from shardkeep.world import World, refuse_late_rank
from tests.waiting import PATIENCE_S

TORCHRUN = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "ROLE_RANK": "9",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "6",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "4,2",
    "SLURM_TASKS_PER_NODE": "4,2",
}
SBATCH_SHELL = {
    "SLURM_JOB_ID": "4711",
    "SLURM_NTASKS": "16",
    "SLURM_NPROCS": "16",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_TASKS_PER_NODE": "8(x2)",
}
SALLOC_SHELL = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "16", "SLURM_NNODES": "2"}
INTERACTIVE_STEP = {
    **SALLOC_SHELL,
    "SLURM_STEP_ID": "4294967290",
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
}
SRUN_A_NODE = {
    **SRUN,
    "SLURM_NTASKS": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_LOCALID": "0",
}
SRUN_A_NODE |= {"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "9",
    "OMPI_COMM_WORLD_SIZE": "16",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    "PMIX_RANK": "9",
}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
MVAPICH = {
    "MV2_COMM_WORLD_RANK": "3",
    "MV2_COMM_WORLD_SIZE": "4",
    "MV2_COMM_WORLD_LOCAL_RANK": "3",
    "MV2_COMM_WORLD_LOCAL_SIZE": "4",
}
HOROVODRUN = {
    "HOROVOD_RANK": "3",
    "HOROVOD_SIZE": "4",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "1",
    "HOROVOD_CROSS_SIZE": "2",
    "HOROVOD_FUSION_THRESHOLD": "67108864",
}
CLUSTER = {
    "chief": ["c:2222"],
    "worker": ["w0:2222", "w1:2222"],
    "ps": ["p:2222"],
    "evaluator": ["e:2222"],
}


def tf_config(kind: str, index: object, cluster: object = CLUSTER) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


def vertex(kind: str, index: int) -> dict[str, str]:
    cluster = {"workerpool0": ["a:1"], "workerpool1": ["b:1", "c:1"], "workerpool2": ["d:1"]}
    task = {"type": kind, "index": index, "trial": "7"}
    return {"CLUSTER_SPEC": json.dumps({"cluster": cluster, "environment": "cloud", "task": task})}


FLUX = {
    "FLUX_TASK_RANK": "5",
    "FLUX_JOB_SIZE": "8",
    "FLUX_TASK_LOCAL_ID": "1",
    "FLUX_JOB_NNODES": "2",
}
PALS = {
    "PALS_RANKID": "5",
    "PMI_RANK": "5",
    "PMI_SIZE": "8",
    "PALS_LOCAL_RANKID": "1",
    "PMI_LOCAL_SIZE": "4",
}
TPU = {"TPU_WORKER_ID": "2", "TPU_WORKER_HOSTNAMES": "t0,t1,t2,t3"}
SAGEMAKER = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_CURRENT_HOST": "algo-2", "SM_NUM_GPUS": "8"}
INDEXED_JOB = {"JOB_COMPLETION_INDEX": "2", "WORLD_SIZE": "4", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
KUBEFLOW_POD = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
TRAINER_POD = {
    "JOB_COMPLETION_INDEX": "1",
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "1",
}

ONE = (0, 1, 0, 1)
FOUND = {
    "nothing": ({}, ONE, "default"),
    "a desktop": ({"HOME": "/home/a", "PATH": "/bin", "LANG": "C"}, ONE, "default"),
    "empty variables": ({"RANK": "", "WORLD_SIZE": " "}, ONE, "default"),
    "torchrun": (TORCHRUN, (9, 16, 1, 8), "torchrun"),
    "env:// by hand": ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4, 0, 1), "torchrun"),
    "env:// with a local rank": (
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"},
        (3, 4, 3, 4),
        "torchrun",
    ),
    "deepspeed": (
        {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "2", "CROSS_RANK": "1"},
        (3, 4, 1, 2),
        "torchrun",
    ),
    "srun": (SRUN, (5, 6, 1, 2), "slurm"),
    "srun, first task": (
        {**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
        (0, 6, 0, 4),
        "slurm",
    ),
    "srun, few variables": (
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "3"},
        (3, 8, 3, 4),
        "slurm",
    ),
    "srun, fewer variables": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (0, 8, 0, 1), "slurm"),
    "srun of a part of the job": ({**SRUN, "SLURM_NTASKS": "64"}, (5, 6, 1, 2), "slurm"),
    "srun, an odd list of tasks": ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "4,x"}, (5, 6, 1, 2), "slurm"),
    "sbatch script": (SBATCH_SHELL, ONE, "default"),
    "salloc shell": (SALLOC_SHELL, ONE, "default"),
    "salloc with an interactive step": (INTERACTIVE_STEP, ONE, "default"),
    "mpirun": (OPEN_MPI, (9, 16, 1, 8), "mpi"),
    "mpiexec.hydra": (HYDRA, (3, 4, 1, 2), "mpi"),
    "mpirun_rsh": (MVAPICH, (3, 4, 3, 4), "mpi"),
    "PMI without a size": ({"PMI_RANK": "3"}, ONE, "default"),
    "jax variables": ({"JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "4"}, (3, 4, 0, 1), "jax"),
    "number of JAX processes alone": ({"JAX_NUM_PROCESSES": "4"}, ONE, "default"),
    "jax variables in an indexed Job": (
        {"JAX_PROCESS_ID": "3", "JAX_NUM_PROCESSES": "4", "JOB_COMPLETION_INDEX": "3"},
        (3, 4, 0, 1),
        "jax",
    ),
    "horovodrun": (HOROVODRUN, (3, 4, 1, 2), "horovod"),
    "flux": (FLUX, (5, 8, 1, 4), "flux"),
    "flux without nodes": ({"FLUX_TASK_RANK": "3", "FLUX_JOB_SIZE": "8"}, (3, 8, 0, 1), "flux"),
    "torchrun from flux": (
        TORCHRUN | {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"},
        (9, 16, 1, 8),
        "torchrun",
    ),
    "flux with its PMI": (FLUX | {"PMI_RANK": "5", "PMI_SIZE": "8"}, (5, 8, 1, 4), "mpi"),
    "Cray PALS": (PALS, (5, 8, 1, 4), "mpi"),
    "TPU slice": (TPU, (2, 4, 0, 1), "tpu"),
    "two TPU slices": (
        TPU | {"MEGASCALE_SLICE_ID": "1", "MEGASCALE_NUM_SLICES": "2"},
        (6, 8, 0, 1),
        "tpu",
    ),
    "one TPU host": ({"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}, ONE, "tpu"),
    "Vertex, primary": (vertex("workerpool0", 0), (0, 3, 0, 1), "vertex"),
    "Vertex, worker": (vertex("workerpool1", 1), (2, 3, 0, 1), "vertex"),
    "Vertex with TF_CONFIG": (vertex("workerpool1", 0) | tf_config("worker", 0), (1, 3, 0, 1), "TF_CONFIG"),
    "a CLUSTER_SPEC of another program": ({"CLUSTER_SPEC": "a:1,b:1"}, ONE, "default"),
    "chief": (tf_config("chief", 0), (0, 3, 0, 1), "TF_CONFIG"),
    "worker": (tf_config("worker", 1), (2, 3, 0, 1), "TF_CONFIG"),
    "worker without a chief": (tf_config("worker", 1, {"worker": ["a:1", "b:1"]}), (1, 2, 0, 1), "TF_CONFIG"),
    "index as text": (tf_config("worker", "0"), (1, 3, 0, 1), "TF_CONFIG"),
    "master of SageMaker": (
        tf_config("worker", 0, {"master": ["a:1"], "worker": ["b:1"]}) | SAGEMAKER,
        (1, 2, 0, 1),
        "TF_CONFIG",
    ),
    "TF_CONFIG without a cluster": ({"TF_CONFIG": "{}"}, ONE, "default"),
    "SageMaker": (SAGEMAKER, (1, 2, 0, 1), "sagemaker"),
    "SageMaker, one host": ({"SM_HOSTS": '["algo-1"]', "SM_CURRENT_HOST": "algo-1"}, ONE, "sagemaker"),
    "indexed Job": (INDEXED_JOB, (2, 4, 0, 1), "kubernetes"),
    "indexed Job with its completions": (
        {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"},
        (2, 3, 0, 1),
        "kubernetes",
    ),
    "Kubeflow, one process a pod": (KUBEFLOW_POD, (1, 2, 0, 1), "torchrun"),
    # -- one inside the other
    "torchrun from srun": (TORCHRUN | SRUN_A_NODE, (9, 16, 1, 8), "torchrun"),
    "torchrun from an sbatch script": (TORCHRUN | SBATCH_SHELL, (9, 16, 1, 8), "torchrun"),
    "torchrun from one task": (
        {**TORCHRUN, "WORLD_SIZE": "8", "RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
        (1, 8, 1, 8),
        "torchrun",
    ),
    "mpirun whose daemons srun started": (
        OPEN_MPI | {**SRUN_A_NODE, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"},
        (9, 16, 1, 8),
        "mpi",
    ),
    "mpirun over nodes, one task each": (OPEN_MPI | SRUN_A_NODE, (9, 16, 1, 8), "mpi"),
    "srun --mpi=pmi2": (SRUN | {"PMI_RANK": "5", "PMI_SIZE": "6"}, (5, 6, 1, 2), "slurm"),
    "srun and env:// in one script": (SRUN | {"RANK": "5", "WORLD_SIZE": "6"}, (5, 6, 1, 2), "torchrun"),
    "srun and WORLD_SIZE alone": (SRUN | {"WORLD_SIZE": "6", "MASTER_ADDR": "n"}, (5, 6, 1, 2), "slurm"),
    "horovodrun over mpirun": (
        HOROVODRUN | {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"},
        (3, 4, 1, 2),
        "mpi",
    ),
    "torchrun in SageMaker": (TORCHRUN | SAGEMAKER, (9, 16, 1, 8), "torchrun"),
    "torchrun in Kubeflow's pods": (
        KUBEFLOW_POD | TORCHRUN | {"PET_NPROC_PER_NODE": "8"},
        (9, 16, 1, 8),
        "torchrun",
    ),
    "torchrun in a Trainer's pods": (TRAINER_POD | TORCHRUN, (9, 16, 1, 8), "torchrun"),
    "torchrun in an indexed Job of unknown size": (
        TORCHRUN | {"JOB_COMPLETION_INDEX": "1"},
        (9, 16, 1, 8),
        "torchrun",
    ),
    "mpirun over nodes that differ": (
        OPEN_MPI | {**SRUN_A_NODE, "OMPI_COMM_WORLD_SIZE": "12", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
        (9, 12, 1, 4),
        "mpi",
    ),
    "torchrun from mpirun": (
        TORCHRUN | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
        (9, 16, 1, 8),
        "torchrun",
    ),
    "SHARDKEEP_RANK settles all": (
        {**TORCHRUN, **HYDRA, "SHARDKEEP_RANK": "1", "SHARDKEEP_WORLD_SIZE": "3"},
        (1, 3, 0, 1),
        "explicit",
    ),
    "SHARDKEEP_LOCAL_RANK": (
        {
            "SHARDKEEP_RANK": "1",
            "SHARDKEEP_WORLD_SIZE": "4",
            "SHARDKEEP_LOCAL_RANK": "1",
            "SHARDKEEP_LOCAL_WORLD_SIZE": "2",
        },
        (1, 4, 1, 2),
        "explicit",
    ),
    "an evaluator that says who it is": (
        tf_config("evaluator", 0) | {"SHARDKEEP_RANK": "0", "SHARDKEEP_WORLD_SIZE": "1"},
        ONE,
        "explicit",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_variants_are_recognised(name: str) -> None:
    env, numbers, source = FOUND[name]
    world = World.detect(env)
    assert (world.rank, world.size, world.local_rank, world.local_size) == numbers
    assert world.source == source


REFUSED = {
    "a stale WORLD_SIZE=1 under srun": (
        SRUN | {"RANK": "0", "WORLD_SIZE": "1"},
        ["torchrun says rank 0 of 1 (RANK=0, WORLD_SIZE=1)", "slurm says rank 5 of 6 (SLURM_PROCID=5"],
    ),
    "the rank of another": (SRUN | {"RANK": "4", "WORLD_SIZE": "6"}, ["RANK=4", "SLURM_PROCID=5"]),
    "nodes taken for ranks": (
        SRUN | {"RANK": "1", "WORLD_SIZE": "2"},
        ["WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=6"],
    ),
    "env:// larger than srun": (SRUN_A_NODE | {"RANK": "9", "WORLD_SIZE": "16"}, ["WORLD_SIZE=16", "=2"]),
    "torchrun without --nnodes": (
        {**TORCHRUN, **SRUN_A_NODE, "WORLD_SIZE": "8", "RANK": "1"},
        ["WORLD_SIZE=8", "SLURM_STEP_NUM_TASKS=2"],
    ),
    "WORLD_SIZE alone and another size": (
        SRUN | {"WORLD_SIZE": "8"},
        ["WORLD_SIZE=8", "slurm says rank 5 of 6"],
    ),
    "RANK alone and another rank": (SRUN | {"RANK": "1"}, ["RANK=1", "slurm says rank 5 of 6"]),
    "mpirun smaller than srun": (SRUN | HYDRA, ["SLURM_PROCID=5", "PMI_RANK=3"]),
    "two clusters": (
        tf_config("worker", 1) | HOROVODRUN,
        ["horovod says rank 3 of 4", "TF_CONFIG task worker 1"],
    ),
    "torchrun over fewer nodes than mpirun": (
        TORCHRUN | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"},
        ["WORLD_SIZE=16", "OMPI_COMM_WORLD_SIZE=3"],
    ),
    "more nodes than torchrun can be on": (
        {**TORCHRUN, **SRUN_A_NODE, "SLURM_STEP_NUM_TASKS": "10"},
        ["WORLD_SIZE=16", "SLURM_STEP_NUM_TASKS=10"],
    ),
    "SageMaker and TF_CONFIG": (
        SAGEMAKER | tf_config("worker", 0),
        ["TF_CONFIG task", "SM_CURRENT_HOST=algo-2"],
    ),
    "RANK alone": ({"RANK": "3"}, ["RANK=3 is set but WORLD_SIZE is not"]),
    "WORLD_SIZE alone": ({"WORLD_SIZE": "3"}, ["WORLD_SIZE=3 is set but RANK is not"]),
    "SHARDKEEP_RANK alone": (TORCHRUN | {"SHARDKEEP_RANK": "0"}, ["SHARDKEEP_WORLD_SIZE is not"]),
    "SHARDKEEP_WORLD_SIZE alone": ({"SHARDKEEP_WORLD_SIZE": "2"}, ["SHARDKEEP_RANK is not"]),
    "OMPI rank alone": ({"OMPI_COMM_WORLD_RANK": "1"}, ["OMPI_COMM_WORLD_SIZE is not"]),
    "Horovod size alone": ({"HOROVOD_SIZE": "1"}, ["HOROVOD_RANK is not"]),
    "SLURM_PROCID alone": ({"SLURM_PROCID": "1"}, ["SLURM_NTASKS is not"]),
    "an indexed Job of unknown size": (
        {"JOB_COMPLETION_INDEX": "3"},
        ["JOB_COMPLETION_INDEX=3", "WORLD_SIZE"],
    ),
    "SM_HOSTS alone": ({"SM_HOSTS": '["a"]'}, ["SM_CURRENT_HOST is not"]),
    "SM_CURRENT_HOST alone": ({"SM_CURRENT_HOST": "a"}, ["SM_HOSTS is not"]),
    "a host that is none": (SAGEMAKER | {"SM_CURRENT_HOST": "algo-3"}, ["algo-3 is not in SM_HOSTS"]),
    "SM_HOSTS no JSON": (SAGEMAKER | {"SM_HOSTS": "algo-1,algo-2"}, ["SM_HOSTS=algo-1,algo-2"]),
    "no number": ({"RANK": "one", "WORLD_SIZE": "2"}, ["RANK='one'"]),
    "negative": ({"RANK": "-1", "WORLD_SIZE": "2"}, ["RANK='-1'"]),
    "rank too large": (
        {"RANK": "2", "WORLD_SIZE": "2"},
        ["RANK=2, WORLD_SIZE=2", "rank=2 is not valid for size=2"],
    ),
    "size 0": ({"RANK": "0", "WORLD_SIZE": "0"}, ["WORLD_SIZE=0"]),
    "local size too large": (TORCHRUN | {"LOCAL_WORLD_SIZE": "32"}, ["local_size=32"]),
    "parameter server": (tf_config("ps", 0), ["is a ps, which reads no training data"]),
    "Vertex, parameter server": (vertex("workerpool2", 0), ["parameter servers"]),
    "Vertex beyond its cluster": (vertex("workerpool1", 2), ["workerpool1 2 is not in its cluster"]),
    "Vertex without a task": ({"CLUSTER_SPEC": '{"cluster": {"workerpool0": []}}'}, ["no cluster and task"]),
    "TPU worker beyond its slice": (TPU | {"TPU_WORKER_ID": "4"}, ["TPU_WORKER_ID=4, 4 in"]),
    "evaluator": (tf_config("evaluator", 0), ["is a evaluator, which reads no training data", "World()"]),
    "TF_CONFIG no JSON": ({"TF_CONFIG": "{"}, ["is not JSON"]),
    "TF_CONFIG without a task": ({"TF_CONFIG": json.dumps({"cluster": CLUSTER})}, ["no task"]),
    "TF_CONFIG of an unknown role": (tf_config("boss", 0), ["no task boss 0"]),
    "TF_CONFIG beyond its cluster": (tf_config("worker", 2), ["no task worker 2"]),
    "TF_CONFIG with a dict of hosts": (tf_config("worker", 0, {"worker": {"0": "a"}}), ["not lists"]),
    "TF_CONFIG with a text": (tf_config("worker", 0, "worker"), ["no task with type"]),
    "the process that is to start torchrun": (
        KUBEFLOW_POD | {"PET_NPROC_PER_NODE": "8"},
        ["PET_NPROC_PER_NODE=8", "LOCAL_RANK is not set"],
    ),
    "the process that is to start torchrun, Trainer": (TRAINER_POD, ["PET_NPROC_PER_NODE=8"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_input_is_refused(name: str) -> None:
    env, words = REFUSED[name]
    with pytest.raises(WorldError) as caught:
        World.detect(env)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_disagreement_names_the_remedy() -> None:
    with pytest.raises(WorldError, match=r"World\(rank=..., size=...\).*SHARDKEEP_RANK"):
        World.detect(SRUN | {"RANK": "0", "WORLD_SIZE": "1"})


# -- live frameworks --------------------------------------------------------------------------------


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Remove the variables of all launchers and all frameworks."""
    prefixes = (
        "SLURM_",
        "OMPI_",
        "PMI",
        "MPI_",
        "HOROVOD_",
        "SM_",
        "PET_",
        "SHARDKEEP_",
        "MV2_",
        "JOB_COMPL",
        "FLUX_",
        "PALS_",
        "TPU_",
        "JAX_",
        "CLUSTER_SPEC",
    )
    for name in list(os.environ):
        if name.startswith(prefixes) or name in (*TORCHRUN, "TF_CONFIG", "LOCAL_SIZE"):
            monkeypatch.delenv(name)
    for name in ("torch.distributed", "jax._src.distributed", "horovod.torch", "horovod.tensorflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return monkeypatch


def fake_torch(rank: int, size: int, *, initialised: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: initialised,
        get_rank=lambda: rank,
        get_world_size=lambda: size,
    )


def fake_jax(rank: int, size: int, *, client: object) -> SimpleNamespace:
    return SimpleNamespace(global_state=SimpleNamespace(client=client, process_id=rank, num_processes=size))


def fake_horovod(rank: int, size: int) -> SimpleNamespace:
    return SimpleNamespace(
        is_initialized=lambda: True,
        rank=lambda: rank,
        size=lambda: size,
        local_rank=lambda: 1,
        local_size=lambda: 2,
    )


def test_environment_without_a_launcher_is_one_process(clean: pytest.MonkeyPatch) -> None:
    assert World.detect().source == "default"


def test_an_initialised_torch_wins_over_variables(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "torch.distributed", fake_torch(5, 8))
    clean.setenv("RANK", "0")
    clean.setenv("WORLD_SIZE", "2")
    world = World.detect()
    assert (world, world.source) == (World(5, 8), "torch.distributed")
    # Another environment says nothing of this process.
    assert World.detect(dict(os.environ)) == World(0, 2)
    clean.setenv("LOCAL_RANK", "1")
    clean.setenv("LOCAL_WORLD_SIZE", "4")
    assert World.detect() == World(5, 8, 1, 4)
    clean.setenv("SHARDKEEP_RANK", "0")
    clean.setenv("SHARDKEEP_WORLD_SIZE", "1")
    assert World.detect().source == "explicit"


def test_torch_without_a_process_group_is_ignored(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "torch.distributed", fake_torch(5, 8, initialised=False))
    assert World.detect().source == "default"


def test_jax_process_numbers_are_used(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "jax._src.distributed", fake_jax(0, 1, client=None))
    assert World.detect().source == "default"
    clean.setitem(sys.modules, "jax._src.distributed", fake_jax(3, 4, client=object()))
    world = World.detect()
    assert (world, world.source) == (World(3, 4), "jax.distributed")


def test_horovod_numbers_are_used(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "horovod.torch", fake_horovod(3, 4))
    world = World.detect()
    assert (world, world.source) == (World(3, 4, 1, 2), "horovod")


def test_two_live_frameworks_must_agree(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "torch.distributed", fake_torch(3, 4))
    clean.setitem(sys.modules, "horovod.torch", fake_horovod(3, 4))
    world = World.detect()
    assert (world, world.source) == (World(3, 4, 1, 2), "torch.distributed")
    clean.setitem(sys.modules, "horovod.torch", fake_horovod(1, 2))
    with pytest.raises(WorldError, match=r"torch\.distributed says rank 3 of 4.*horovod says rank 1 of 2"):
        World.detect()


@pytest.mark.parametrize(
    "name", ["PMIX_RANK", "PMI_RANK", "LOCAL_RANK", "JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"]
)
def test_sign_of_several_processes_without_a_rank_warns(clean: pytest.MonkeyPatch, name: str) -> None:
    clean.setattr("shardkeep.world._warned_pid", 0)
    clean.setenv(name, "3")
    with pytest.warns(RuntimeWarning, match=rf"{name}=3 suggests .* pass world=sk.World\(rank, size\)"):
        assert World.detect().source == "default"
    World.detect()  # warns once: a second warning would be an error


def test_a_default_world_is_refused_where_a_framework_has_a_rank_later(clean: pytest.MonkeyPatch) -> None:
    world = World.detect()
    refuse_late_rank(world)
    clean.setitem(sys.modules, "jax._src.distributed", fake_jax(0, 1, client=object()))
    refuse_late_rank(world)  # a single process
    clean.setitem(sys.modules, "jax._src.distributed", fake_jax(1, 2, client=object()))
    with pytest.raises(
        WorldError, match=r"jax\.distributed says rank 1 of 2 .* rank 0 of 1.*make it afterwards"
    ):
        refuse_late_rank(world)
    for other in (World(0, 1), World(1, 2), World.detect()):
        refuse_late_rank(other)


def fake_ray(mode: int) -> SimpleNamespace:
    return SimpleNamespace(global_worker=SimpleNamespace(mode=mode))


def fake_train(rank: int, size: int) -> SimpleNamespace:
    numbers = {"get_world_rank": rank, "get_world_size": size, "get_local_rank": 1, "get_local_world_size": 2}
    context = SimpleNamespace(**{name: lambda value=value: value for name, value in numbers.items()})
    return SimpleNamespace(get_context=lambda: context)


def test_ray_actor_warns_and_its_driver_does_not(clean: pytest.MonkeyPatch) -> None:
    clean.setattr("shardkeep.world._warned_pid", 0)
    clean.setitem(sys.modules, "ray._private.worker", fake_ray(0))
    assert World.detect().source == "default"
    clean.setitem(sys.modules, "ray._private.worker", fake_ray(1))
    with pytest.warns(RuntimeWarning, match="a Ray task or actor suggests"):
        World.detect()


def test_ray_train_numbers_are_used(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "ray._private.worker", fake_ray(1))
    clean.setitem(sys.modules, "ray.train", fake_train(3, 4))
    world = World.detect()
    assert (world, world.source) == (World(3, 4, 1, 2), "ray.train")


def test_the_only_worker_of_ray_train_does_not_warn(clean: pytest.MonkeyPatch) -> None:
    clean.setattr("shardkeep.world._warned_pid", 0)
    train = fake_train(0, 1)
    clean.setitem(sys.modules, "ray._private.worker", fake_ray(1))
    clean.setitem(sys.modules, "ray.train", train)
    with pytest.warns(RuntimeWarning, match="a Ray task or actor suggests"):
        World.detect()  # outside of a run
    clean.setattr("shardkeep.world._warned_pid", 0)
    train.get_context().get_experiment_name = lambda: "run"
    assert World.detect() == World(0, 1)


def test_dask_worker_warns(clean: pytest.MonkeyPatch) -> None:
    clean.setattr("shardkeep.world._warned_pid", 0)
    clean.setitem(sys.modules, "distributed.worker", SimpleNamespace(get_worker=object))
    with pytest.warns(RuntimeWarning, match="a Dask worker suggests"):
        World.detect()


def test_group_made_by_hand_counts_the_workers_of_the_machine(clean: pytest.MonkeyPatch) -> None:
    clean.setitem(sys.modules, "torch.distributed", fake_torch(5, 8))
    clean.setattr("shardkeep.world.count_workers", lambda: 4)
    assert World.detect() == World(5, 8, 1, 4)


def test_no_framework_is_imported() -> None:
    code = """
import sys
from shardkeep.world import World, refuse_late_rank
World.detect()
assert not {"torch", "jax", "horovod", "tensorflow"} & set(sys.modules)
"""
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=PATIENCE_S)


# -- the value --------------------------------------------------------------------------------------


def test_world_is_comparable_hashable_and_picklable() -> None:
    world = World(3, 8, local_rank=1, local_size=2)
    assert world == World(3, 8, 1, 2, source="torchrun")
    assert hash(world) == hash(World(3, 8, 1, 2, source="torchrun"))
    copy = pickle.loads(pickle.dumps(World(3, 8, 1, 2, source="torchrun")))
    assert (copy, copy.source) == (world, "torchrun")
    assert World() == World(0, 1, 0, 1, "explicit")
    assert World().source == "explicit"
    assert type(World(np.int64(3), np.int64(8)).rank) is int  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        world.rank = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((-1, 2), "rank=-1 is not valid for size=2"),
        ((2, 2), "rank=2 is not valid for size=2"),
        ((0, 0), "size=0"),
        ((0, 2, 1, 1), "local_rank=1"),
        ((0, 2, -1, 1), "local_rank=-1"),
        ((0, 2, 0, 3), "local_size=3"),
        ((0, 2, 0, 0), "local_size=0"),
        ((0.0, 2), "rank must be an int, not 0.0"),
        ((True, 2), "rank must be an int, not True"),
        ((0, "2"), "size must be an int, not '2'"),
        ((0, None), "size must be an int, not None"),
    ],
)
def test_bad_numbers_are_refused(numbers, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(WorldError, match=words):
        World(*numbers)
