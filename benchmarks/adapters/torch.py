"""The torch adapter, and the Loader that it drains."""

import os
from functools import partial

import numpy as np
import torch

import shardkeep as sk
from benchmarks.peer_loop import serve
from shardkeep.adapters.torch import DataLoader


def loader(files, batch):
    """Return the loader of all jobs: PNGs as float32."""
    features = {"image_raw": sk.Image(), "label": sk.FixedLen()}
    return sk.Loader(files, features, batch, sk.World(0, 1), shuffle="blocks")


def drained(files, batch, most, *, adapter):
    batches = loader(files, batch)
    if adapter:
        batches = DataLoader(batches)
    yield
    yield sum(int(np.count_nonzero(batch["valid"])) for batch in batches)


def keras(files, batch, most, *, kind):
    os.environ["KERAS_BACKEND"] = "torch"
    from benchmarks.adapters.keras_jobs import run

    yield from run(kind, loader(files, batch))


JOBS = {"adapter": partial(drained, adapter=True), "loader": partial(drained, adapter=False)}
KERAS = ("drained", "loader", "fit", "generator", "repeated")
JOBS |= {f"keras {kind}": partial(keras, kind=kind) for kind in KERAS}

if __name__ == "__main__":
    torch.set_num_threads(1)
    serve(JOBS, "torch keras")
