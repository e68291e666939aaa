"""One worker of a MultiWorkerMirroredStrategy.

`python -m tests.frameworks.consumers.programs.multi_worker_run FOLDER [STEPS]`, with TF_CONFIG: trains two
epochs, or STEPS steps, from the state in FOLDER/state.json if there is one, and keeps its rows in the worker
files FOLDER/run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tensorflow as tf

import shardkeep as sk
from shardkeep.adapters.tensorflow import distribute, local_rows
from tests.frameworks.exactly_once import make_loader


def main(folder: Path, limit: int) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    paths = sorted(map(str, folder.glob("*.tfrecord")))
    world = sk.World.detect()
    batches = distribute(strategy, lambda context: make_loader(paths, world.rank, world.size))
    loader = batches.loader
    saved = folder / "state.json"
    if saved.exists():
        loader.load_state_dict(json.loads(saved.read_text()))

    @tf.function
    def train(batch):  # type: ignore[no-untyped-def]
        def one(batch):  # type: ignore[no-untyped-def]
            mask = tf.cast(batch["valid"], tf.int64)
            context = tf.distribute.get_replica_context()
            return (
                batch["x"],
                batch["valid"],
                context.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(mask)),
            )

        return strategy.run(one, args=(batch,))

    rows = 0
    with sk.hdf5.WorkerFile(folder / "run", world=world) as out:
        while loader.epoch < 2 and limit > 0:
            for batch in batches:
                x, valid, total = local_rows(strategy, train(batch))
                out.append("x", x[valid])
                rows += int(total[0])
                limit -= 1
                if not limit:
                    break
        out.commit(step=loader.epoch * 1000 + loader.position, receipt=loader.receipt())
    if world.rank == 0:
        saved.write_text(json.dumps(loader.state_dict()))
    json.dump({"rank": world.rank, "rows of all ranks": rows}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30)
