"""Training program with MonitoredTrainingSession for the tests of `RunHook`.

Arguments: folder, task ("alone", "ps" or "worker"), its number, ports of the cluster, and what to do at which
step. Prints a line for each step of a worker.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
import time
from typing import Any

import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import RunHook
from tests.frameworks.exactly_once import make_loader

v1 = tf.compat.v1


def report(*words: Any) -> None:
    """Print a line at once."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def batches(loader: sk.Loader) -> dict[str, Any]:
    """Return the tensors of the next batch, from a dataset that begins where the loader is."""

    def rows() -> Any:
        for batch, place in loader.read_ahead():
            yield {"x": batch["x"], "valid": batch["valid"], "place": place.to_array()}

    signature = {
        "x": tf.TensorSpec((None,), tf.int64),
        "valid": tf.TensorSpec((None,), tf.bool),
        "place": tf.TensorSpec((None,), tf.int64),
    }
    dataset = tf.data.Dataset.from_generator(rows, output_signature=signature).prefetch(2)
    iterator = v1.data.make_initializable_iterator(dataset)
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    tensors: dict[str, Any] = iterator.get_next()
    return tensors


def train(
    folder: str,
    rank: int,
    size: int,
    *,
    epochs: int = 2,
    run: str = "",
    save_steps: int = 10,
    kill_after: int = 0,
    sleep_s: float = 0.0,
    commit_secs: float = 10.0,
    server: Any = None,
    cluster: Any = None,
) -> None:
    """Train a model that counts the rows, and write their numbers."""
    paths = sorted(glob.glob(f"{folder}/*.tfrecord"))
    loader = make_loader(paths, rank, size, epochs=epochs)
    logdir = f"{folder}/log"
    device: Any = "/cpu:0"
    if server is not None:
        device = v1.train.replica_device_setter(worker_device=f"/job:worker/task:{rank}", cluster=cluster)
    with (
        tf.Graph().as_default(),
        v1.device(device),
        sk.hdf5.WorkerFile(run or f"{folder}/run", sk.World(rank, size)) as out,
    ):
        step = v1.train.get_or_create_global_step()
        seen = v1.get_variable("seen", (), tf.int64, initializer=v1.zeros_initializer(), use_resource=True)
        batch = batches(loader)
        x = tf.boolean_mask(batch["x"], batch["valid"])
        with tf.control_dependencies([seen.assign_add(tf.size(x, out_type=tf.int64))]):
            train_op = v1.assign_add(step, 1)
        hook = RunHook(
            out,
            {"x": x, "loss": tf.reduce_sum(x) * 2},
            logdir,
            data=loader,
            place=batch["place"],
            commit_secs=commit_secs,
        )
        config = None
        if server is not None:
            config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{rank}"])
        session = v1.train.MonitoredTrainingSession(
            master="" if server is None else server.target,
            is_chief=rank == 0,
            checkpoint_dir=logdir,
            hooks=[hook],
            save_checkpoint_steps=save_steps,
            save_summaries_steps=0,
            log_step_count_steps=0,
            config=config,
        )
        made = 0
        with session:
            report("began", out.committed_step)
            while not session.should_stop():
                session.run(train_op)
                made += 1
                report("step", made)
                time.sleep(sleep_s)
                if made == kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
        report("ended", out.committed_step)


def main() -> None:
    """Run one task of the cluster, or one process alone."""
    folder, job, number, workers, options = sys.argv[1:]
    addresses = json.loads(workers)
    if job == "alone":
        train(folder, 0, 1, **json.loads(options))
        return
    cluster = tf.train.ClusterSpec(addresses)
    server = tf.distribute.Server(cluster, job_name=job, task_index=int(number))
    if job == "ps":
        server.join()
    size = len(addresses["worker"])
    train(folder, int(number), size, server=server, cluster=cluster, **json.loads(options))


if __name__ == "__main__":
    main()
