"""A training that is killed, resumed by fewer workers, merged and audited.

    python examples/train_tensorflow.py FOLDER

Two workers of a MultiWorkerMirroredStrategy train on this host. One is killed in the middle of the first
epoch, and one worker resumes from the newest checkpoint. The results of all workers are merged into one HDF5
file, and the audit proves that they have every record of both epochs once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import shardkeep as sk

RECORDS, EPOCHS, BATCH, SAVE_EVERY = 2000, 2, 16, 10


def train(folder: Path) -> None:
    """Train in one worker; rank and cluster come from TF_CONFIG."""
    import tensorflow as tf

    from shardkeep.adapters.tensorflow import distribute, local_rows

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    world = sk.World.detect()

    def make_loader(context: tf.distribute.InputContext) -> sk.Loader:
        # BATCH is the number of rows of one worker.
        return sk.Loader(
            str(folder / "train-*.tfrecord"),
            {"x": sk.FixedLen()},
            BATCH,
            world,
            shuffle="global",
            epochs=EPOCHS,
        )

    batches = distribute(strategy, make_loader)
    with strategy.scope():
        weight = tf.Variable(0.0)
        step = tf.Variable(0, dtype=tf.int64)

    @tf.function
    def train_step(batch):  # type: ignore[no-untyped-def]
        def one(batch):  # type: ignore[no-untyped-def]
            x = tf.cast(batch["x"], tf.float32) / RECORDS
            mask = tf.cast(batch["valid"], tf.float32)
            error = (weight * x - 3 * x) * mask
            replica = tf.distribute.get_replica_context()
            gradient = replica.all_reduce("SUM", tf.reduce_sum(2 * error * x))
            rows = replica.all_reduce("SUM", tf.reduce_sum(mask))
            weight.assign_sub(gradient / rows)
            step.assign_add(1)
            return error**2

        return strategy.run(one, args=(batch,))

    @tf.function
    def barrier():  # type: ignore[no-untyped-def]
        return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1)))

    # The batches are part of the checkpoint: their state is the place after the last step.
    checkpoint = tf.train.Checkpoint(weight=weight, step=step, batches=batches)
    saved = folder / "checkpoints"
    own = saved if world.rank == 0 else folder / f"not-used-{world.rank}"  # TensorFlow saves on all workers
    manager = tf.train.CheckpointManager(checkpoint, str(own), max_to_keep=2)
    newest = tf.train.latest_checkpoint(str(saved))
    if newest:
        checkpoint.restore(newest)

    with sk.hdf5.WorkerFile(folder / "run", world) as out:

        def save() -> None:
            # First the rows of all workers, then the checkpoint: a rollback undoes a kill in between.
            out.commit(step=int(step.numpy()), receipt=batches.loader.receipt())
            barrier()
            manager.save()

        for batch in batches:
            losses = train_step(batch)
            local = local_rows(strategy, {**batch, "loss": losses})
            out.append("x", local["x"][local["valid"]])
            out.append("loss", local["loss"][local["valid"]])
            if int(step.numpy()) % SAVE_EVERY == 0:
                save()
        if int(step.numpy()) % SAVE_EVERY:
            save()
    print(
        f"worker {world.rank} of {world.size}: step {int(step.numpy())}, weight {float(weight.numpy()):.3f}",
        flush=True,
    )


def start(folder: Path, workers: int) -> list[subprocess.Popen[bytes]]:
    """Start the workers of a cluster on this host."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]
    cluster = {"worker": [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]}
    for one in sockets:
        one.close()
    command = [sys.executable, __file__, str(folder), "--worker"]
    return [
        subprocess.Popen(
            command,
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
            },
        )
        for index in range(workers)
    ]


def newest_step(folder: Path) -> int:
    """Return the step of the checkpoint that `tf.train.latest_checkpoint` finds, without TensorFlow."""
    index = folder / "checkpoints/checkpoint"
    found = re.search(r'^model_checkpoint_path: "ckpt-(\d+)"', index.read_text() if index.exists() else "")
    return SAVE_EVERY * int(found[1]) if found else 0


def main(folder: Path) -> int:
    """Train, kill, resume, merge and audit."""
    folder.mkdir(parents=True)
    with sk.tfrecord.ShardWriter(folder / "train-{shard}.tfrecord", shards=5) as w:
        for number in range(RECORDS):
            w.write_example({"x": number})

    first = start(folder, 2)
    while newest_step(folder) < 30:
        if any(worker.poll() is not None for worker in first):
            raise SystemExit("a worker ended early")
        time.sleep(0.05)
    first[1].send_signal(signal.SIGKILL)
    for worker in first:
        worker.kill()  # without its peer a worker waits, until its scheduler ends it
        worker.wait()

    step = newest_step(folder)
    print(f"killed; one worker resumes at step {step}", flush=True)
    sk.hdf5.rollback(folder / "run", step=step)  # rows after the checkpoint are trained again
    (last,) = start(folder, 1)
    if last.wait():
        raise SystemExit("the resumed worker failed")

    report = sk.merge(folder / "run", folder / "merged.h5")
    print(f"merged {report.rows['x']} rows")
    audit = sk.audit(folder / "merged.h5", epochs=range(EPOCHS))
    print(audit)
    return 0 if audit.ok else 1


if __name__ == "__main__":
    if sys.argv[2:] == ["--worker"]:
        train(Path(sys.argv[1]))
    else:
        sys.exit(main(Path(sys.argv[1])))
