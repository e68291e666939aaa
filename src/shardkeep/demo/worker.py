"""Worker process of the demo: reads its part of every epoch, computes gradients, writes its own file.

`shardkeep.demo.worker_pool` starts it and exchanges messages with it over one socket. When the socket ends,
the worker exits without a commit, so a step is never committed after the parent has died.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.demo import checkpoint, messages
from shardkeep.demo.data import CLASSES, FEATURES, IMAGE_VALUES
from shardkeep.demo.model import Classifier, Outcome, descend
from shardkeep.errors import InternalError, ShardkeepError
from shardkeep.hdf5 import WorkerFile
from shardkeep.loader import Loader
from shardkeep.world import World

__all__ = ["LOSS_ROW", "PREDICTION_ROW", "main"]

# A row for each record that was used for training.
PREDICTION_ROW = np.dtype(
    [
        ("epoch", "<i4"),
        ("step", "<i4"),
        ("rank", "<i4"),
        ("shard", "<i4"),
        ("index", "<i8"),
        ("label", "<i4"),
        ("predicted", "<i4"),
        ("confidence", "<f4"),
    ]
)

# A row for each step of each rank; `loss` is the mean over `rows`, in nats.
LOSS_ROW = np.dtype(
    [
        ("epoch", "<i4"),
        ("step", "<i4"),
        ("rank", "<i4"),
        ("rows", "<i4"),
        ("loss", "<f8"),
        ("at_s", "<f8"),  # seconds since the run began
    ]
)


def main(descriptor: int) -> int:
    """Work for the parent at the other end of the socket `descriptor` until the run is over.

    Returns
    -------
    int
        0 at the end, and when the parent has closed the socket or died; 1 after an error, which is sent to
        the parent first.
    """
    with Connection(descriptor) as parent:
        try:
            _work(parent, parent.recv())
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return 0
        except Exception as error:
            text = traceback.format_exc()
            sendable = error if isinstance(error, ShardkeepError | OSError) else _as_internal_error(error)
            with contextlib.suppress(OSError):  # the parent may have died as well
                parent.send(messages.Failed(sendable, text))
            return 1
    return 0


def _work(parent: Connection, assignment: messages.Assignment) -> None:
    settings = assignment.settings
    world = World(
        assignment.rank, assignment.world_size, local_rank=assignment.rank, local_size=assignment.world_size
    )
    model = Classifier(inputs=IMAGE_VALUES, hidden=settings.hidden, classes=CLASSES)
    loader = Loader(
        list(assignment.shards),
        features=FEATURES,
        batch_size=settings.batch_size,
        world=world,
        shuffle="global",
        seed=settings.seed,
        remainder="mask",
        epochs=settings.epochs,
        threads=1,
        with_ids=True,
    )
    start = checkpoint.load(assignment.checkpoint)
    model.parameters = start.parameters
    velocity = start.velocity
    if start.loader_state is not None:
        loader.load_state_dict(start.loader_state)

    step = start.step
    with WorkerFile(assignment.run_dir, world) as out:
        parent.send(messages.Ready(step, len(loader)))
        epoch = loader.epoch
        for batch in loader:
            step += 1
            valid = batch["valid"]
            shard, index, labels = batch["shard"][valid], batch["index"][valid], batch["label"][valid]
            outcome = model.evaluate(batch["image_raw"][valid], labels)
            parent.send(
                messages.Contribution(
                    step, epoch, outcome.loss_sum, outcome.gradient_sum, shard, index, _open_files()
                )
            )
            mean: messages.MeanGradient = parent.recv()
            descend(model.parameters, velocity, mean.gradient)

            out.append(
                "predictions", _prediction_rows(epoch, step, assignment.rank, shard, index, labels, outcome)
            )
            out.append("losses", _loss_row(epoch, step, assignment, outcome))
            if mean.commit:
                # Every rank commits its rows before rank 0 publishes the checkpoint that refers to them.
                out.commit(step=step, receipt=loader.receipt())
                state = loader.state_dict()
                parent.send(messages.Committed(step, state, _open_files()))
                if assignment.rank == 0:
                    publish: messages.Publish = parent.recv()
                    checkpoint.publish(
                        assignment.checkpoint,
                        checkpoint.Checkpoint(publish.step, state, model.parameters, velocity),
                    )
                    parent.send(messages.Published(publish.step))
            epoch = loader.epoch
    parent.send(messages.Finished(_open_files()))


def _prediction_rows(
    epoch: int,
    step: int,
    rank: int,
    shard: npt.NDArray[np.int64],
    index: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int64],
    outcome: Outcome,
) -> npt.NDArray[Any]:
    rows = np.empty(len(shard), PREDICTION_ROW)
    rows["epoch"], rows["step"], rows["rank"] = epoch, step, rank
    rows["shard"], rows["index"], rows["label"] = shard, index, labels
    rows["predicted"], rows["confidence"] = outcome.predicted, outcome.confidence
    return rows


def _loss_row(epoch: int, step: int, assignment: messages.Assignment, outcome: Outcome) -> npt.NDArray[Any]:
    rows = len(outcome.predicted)
    loss = outcome.loss_sum / rows if rows else 0.0
    return np.array(
        [(epoch, step, assignment.rank, rows, loss, time.monotonic() - assignment.started_s)], LOSS_ROW
    )


def _open_files() -> int:
    # Listing the folder opens one descriptor.
    return len(os.listdir("/proc/self/fd")) - 1


def _as_internal_error(error: Exception) -> InternalError:
    return InternalError(f"a worker of the demo failed: {type(error).__name__}: {error}")
