"""JAX's side of the comparisons: the adapters for Grain and JAX, and the Loader that they drain."""

import os
import time

import grain
import jax
import numpy as np
from absl import flags

import shardkeep as sk
from benchmarks.peer_loop import serve
from shardkeep.adapters.grain import LoaderDataset, RecordSource, TrackedDataset
from shardkeep.adapters.jax import make_global_batch

FEATURES = {"image_raw": sk.Image(), "label": sk.FixedLen()}


def loader(paths, batch):
    """Return the loader of all jobs: PNGs as float32."""
    return sk.Loader(paths, FEATURES, batch, sk.World(0, 1), shuffle="blocks")


def tracked(paths, batch, workers=0):
    """Return the batches of the adapter, after the start of its workers."""
    source = LoaderDataset(loader(paths, batch))
    dataset = source.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return iter(TrackedDataset(dataset, source))


def placed(paths, batch, checked):
    """Yield the batches as global arrays, by the adapter or by JAX alone."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    for one in loader(paths, batch):
        if checked:
            yield make_global_batch(one, sharding)
        else:
            make = jax.make_array_from_process_local_data
            yield {name: make(sharding, column) for name, column in one.items()}


def one_by_one(paths):
    """Return a source that reads each record alone."""

    class Single:
        records = RecordSource(paths[:1])

        def __len__(self):
            return len(self.records)

        def __getitem__(self, index):
            return self.records[index]

    return Single()


def run(job, paths, batch):
    """Run one job; return the seconds from its first batch on, and the records."""
    if job.startswith("jax keras"):
        os.environ["KERAS_BACKEND"] = "jax"
        from benchmarks import keras_jobs

        return keras_jobs.run(job.split()[2], loader(paths, batch))
    kind = job.split()[1]
    if kind in ("records", "single"):
        source = RecordSource(paths[:1]) if kind == "records" else one_by_one(paths)
        dataset = grain.MapDataset.source(source).shuffle(seed=1)
        start, done = time.perf_counter(), 0
        for first in range(0, len(source) - batch, batch):
            done += len(dataset._getitems(range(first, first + batch)))
        return time.perf_counter() - start, done
    batches = {
        "bare": lambda: iter(loader(paths, batch)),
        "tracked": lambda: tracked(paths, batch),
        "workers": lambda: tracked(paths, batch, 2),
        "global": lambda: placed(paths, batch, True),
        "placed": lambda: placed(paths, batch, False),
    }[kind]()
    next(batches)
    start, done = time.perf_counter(), 0
    for one in batches:
        done += int(np.asarray(one["valid"]).sum())
    return time.perf_counter() - start, done


if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    serve({"jax": jax.__version__, "grain": grain.__version__}, run)
