"""Training with Ray Train: two workers, one of which is killed, then one worker, and the proof at the end.

Each worker takes its part of the records from a `shardkeep.Loader` and writes its results into a file of its
own. Ray restarts both from the last checkpoint after one was killed. One worker then resumes the run. The
results are merged into one HDF5 file, and the audit proves that each record was used once.

    python examples/train_ray.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

import shardkeep as sk

RECORDS = 600


def train(config: dict[str, Any]) -> None:
    # Runs in each worker of Ray.
    world = sk.World.detect()  # from Ray Train
    loader = sk.Loader(config["shards"], {"x": sk.FixedLen()}, 8, world, shuffle="global", seed=1)
    checkpoint = ray.train.get_checkpoint() or config["checkpoint"]
    saved: dict[str, Any] = {"step": None, "weight": 0.0}
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = json.loads(Path(folder, "state.json").read_text())
        loader.load_state_dict(saved["loader"])
    step, weight = saved["step"] or 0, saved["weight"]
    print(f"rank {world.rank} of {world.size} begins after step {step}")
    with sk.hdf5.WorkerFile(config["run"], world) as out:
        out.rollback(step=saved["step"])  # rows after the checkpoint would be written twice
        for batch in loader:
            x = batch["x"][batch["valid"]]
            weight += 0.001 * float(x.sum())  # the training step
            out.append("x", x)
            step += 1
            if step == config["kill_at"] and world.rank == 1 and not os.path.exists(config["killed"]):
                Path(config["killed"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if step % 5 == 0 or not loader.position:
                out.commit(step=step, receipt=loader.receipt())
                save({"step": step, "weight": weight, "loader": loader.state_dict()}, world)
            if step == config["stop_at"]:
                return


def save(state: dict[str, Any], world: sk.World) -> None:
    # Every worker must report; the checkpoint is that of rank 0, since the state is equal on all ranks.
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if world.rank == 0:
            Path(folder, "state.json").write_text(json.dumps(state))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"step": state["step"]}, checkpoint=checkpoint)


def fit(folder: str, workers: int, **config: Any) -> Any:
    trainer = DataParallelTrainer(
        train,
        train_loop_config={
            "shards": f"{folder}/train-*.tfrecord",
            "run": f"{folder}/run",
            "killed": f"{folder}/killed",
            "kill_at": None,
            "stop_at": None,
            "checkpoint": None,
            **config,
        },
        scaling_config=ray.train.ScalingConfig(num_workers=workers),
        run_config=ray.train.RunConfig(
            name=f"with-{workers}",
            storage_path=f"{folder}/checkpoints",
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    )
    return trainer.fit().checkpoint


def main(folder: str) -> None:
    folder = os.path.abspath(folder)
    with sk.tfrecord.ShardWriter(f"{folder}/train-{{shard}}-of-{{shards}}.tfrecord", shards=3) as w:
        for number in range(RECORDS):
            w.write_example({"x": number})

    checkpoint = fit(folder, 2, kill_at=13, stop_at=25)
    print(f"a worker was killed at step 13: {os.path.exists(f'{folder}/killed')}")
    sk.hdf5.rollback(f"{folder}/run", step=25)  # also of ranks that the next run does not have
    fit(folder, 1, checkpoint=checkpoint)

    sk.merge(f"{folder}/run", f"{folder}/results.h5")
    with h5py.File(f"{folder}/results.h5") as file:
        exact = np.array_equal(np.sort(file["x"][:]), np.arange(RECORDS))
    print(f"the results have each record once: {exact}")
    print(sk.audit([f"{folder}/results.h5"]))


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20)
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    ray.shutdown()
