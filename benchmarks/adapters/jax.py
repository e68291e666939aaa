"""The adapters for Grain and JAX, and the Loader that they drain."""

import os
from functools import partial

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


def by_number(files, batch, most, *, source):
    records = source(files[:1])
    dataset = grain.MapDataset.source(records).shuffle(seed=1)
    yield
    starts = range(0, len(records) - batch + 1, batch)
    yield sum(len(dataset._getitems(range(first, first + batch))) for first in starts)


def drained(files, batch, most, *, batches):
    """Read the batches after the first one, which waits for workers."""
    found = iter(batches(files, batch))
    next(found)
    yield
    yield sum(int(np.asarray(one["valid"]).sum()) for one in found)


def keras(files, batch, most, *, kind):
    os.environ["KERAS_BACKEND"] = "jax"
    from benchmarks.adapters.keras_jobs import run

    yield from run(kind, loader(files, batch))


JOBS = {
    "bare": partial(drained, batches=loader),
    "tracked": partial(drained, batches=tracked),
    "workers": partial(drained, batches=partial(tracked, workers=2)),
    "global": partial(drained, batches=partial(placed, checked=True)),
    "placed": partial(drained, batches=partial(placed, checked=False)),
    "records": partial(by_number, source=RecordSource),
    "single": partial(by_number, source=one_by_one),
}
KERAS = ("drained", "loader", "fit", "generator", "repeated")
JOBS |= {f"keras {kind}": partial(keras, kind=kind) for kind in KERAS}

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()
    serve(JOBS, "jax grain keras")
