"""PyTorch's side of the comparisons: DataLoader, vahidk's tfrecord and Pillow; and the torch adapter."""

import importlib.metadata
import io
import os
import time
from functools import cache

import numpy as np
import torch
from PIL import Image
from tfrecord.reader import tfrecord_loader
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import shardkeep as sk
from benchmarks.peer_loop import serve
from shardkeep.adapters.torch import DataLoader as DataLoaderOfShardkeep


class Images(IterableDataset):
    """A dataset that assigns whole files to workers and yields images as float32 in [0, 1]."""

    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        """Yield (pixels, label)."""
        worker = get_worker_info()
        mine = self.paths if worker is None else self.paths[worker.id :: worker.num_workers]
        for path in mine:
            for row in tfrecord_loader(path, None, {"image_raw": "byte", "label": "int"}):
                pixels = np.asarray(Image.open(io.BytesIO(row["image_raw"])).convert("RGB"))
                yield pixels.astype(np.float32) / 255, row["label"]


def images(paths, batch, workers):
    """Read all files once; return the number of images."""
    loader = DataLoader(Images(paths), batch_size=batch, num_workers=workers)
    return sum(len(labels) for _, labels in loader)


@cache
def best_workers(path, batch):
    """Return the fastest number of workers for two files on this machine."""
    seconds = {}
    for workers in (0, 1, 2, 4):
        start = time.perf_counter()
        images([path] * 4, batch, workers)
        seconds[workers] = time.perf_counter() - start
    return min(seconds, key=seconds.get)


def loader(paths, batch):
    """Return the loader of the comparisons with the adapter."""
    features = {"image_raw": sk.Image(), "label": sk.FixedLen()}
    return sk.Loader(paths, features, batch, sk.World(0, 1), shuffle="blocks")


def run(job, paths, argument):
    """Run one job; the peers read half of the files."""
    if job.startswith("torch keras"):
        os.environ["KERAS_BACKEND"] = "torch"
        from benchmarks import keras_jobs

        return keras_jobs.run(job.split()[2], loader(paths, argument))
    if job in ("torch adapter", "torch loader"):
        batches = loader(paths, argument)
        if job == "torch adapter":
            batches = DataLoaderOfShardkeep(batches)
        start = time.perf_counter()
        done = sum(int(np.count_nonzero(batch["valid"])) for batch in batches)
        return time.perf_counter() - start, done
    workers = 2 if job == "torch two workers" else best_workers(paths[0], argument)
    start = time.perf_counter()
    done = images(paths[: len(paths) // 2], argument, workers)
    return time.perf_counter() - start, done


if __name__ == "__main__":
    # One thread per worker, as in a DataLoader; the main process only waits.
    torch.set_num_threads(1)
    serve({"torch": torch.__version__, "tfrecord": importlib.metadata.version("tfrecord")}, run)
