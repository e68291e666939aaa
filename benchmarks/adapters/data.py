"""Cost of the adapters of Hugging Face and Ray over the bare `Loader`, in one run.

    make frameworks && .venv-data/bin/python -m benchmarks.adapters.data [--images 20000] [--rounds 3]

Prints images per second (best round) and microseconds of processor time per image of this process. Ray reads
in other processes, so only its speed is shown.
"""

import argparse
import io
import tempfile
import time

import numpy as np
import ray.data
from PIL import Image

import shardkeep as sk
from shardkeep.adapters.huggingface import to_iterable_dataset
from shardkeep.adapters.ray import read_tfrecords

BATCH = 256
FEATURES = {"png": sk.Image(3, "uint8", size=(32, 32)), "label": sk.FixedLen()}
TEXT = {"name": sk.FixedLen((), "bytes"), "label": sk.FixedLen()}


def write(folder, images):
    """Write PNGs of 32×32×3 with a label and a name into 8 shards."""
    rng = np.random.default_rng(0)
    pngs = []
    for _ in range(100):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8)).save(out, "PNG")
        pngs.append(out.getvalue())
    with sk.tfrecord.ShardWriter(f"{folder}/{{shard}}.tfrecord", shards=8) as w:
        for number in range(images):
            w.write_example({"png": pngs[number % 100], "label": number, "name": f"image {number}"})
    return w.paths


def loader(paths, features=FEATURES):
    """Return a loader in stored order, with the threads of one process of two."""
    return sk.Loader(paths, features, BATCH, sk.World(0, 1), threads=2)


def main():
    """Measure each route, in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    paths = write(tempfile.mkdtemp(), options.images)
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=300 << 20, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    stream, names = (
        to_iterable_dataset(loader(paths)),
        to_iterable_dataset(loader(paths, TEXT), text=["name"]),
    )
    routes = {
        "Loader, images": lambda: sum(len(b["label"]) for b in loader(paths)),
        "to_arrow of each batch": lambda: sum(sk.tfrecord.to_arrow(b).num_rows for b in loader(paths)),
        "to_iterable_dataset, numpy batches": lambda: sum(
            len(b["label"]) for b in stream.with_format("numpy").iter(BATCH)
        ),
        "to_iterable_dataset, rows": lambda: sum(1 for _ in stream.take(options.images // 100)) * 100,
        "Loader, names": lambda: sum(len(b["label"]) for b in loader(paths, TEXT)),
        "to_iterable_dataset, names, arrow batches": lambda: sum(
            len(b) for b in names.with_format("arrow").iter(BATCH)
        ),
        "read_tfrecords (Ray), images": lambda: read_tfrecords(paths, FEATURES).materialize().count(),
        "read_tfrecords (Ray), names": lambda: (
            read_tfrecords(paths, TEXT, text=["name"]).materialize().count()
        ),
    }
    best = {}
    for _ in range(options.rounds):
        for name, route in routes.items():
            wall, cpu = time.perf_counter(), time.process_time()
            rows = route()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            part = 100 if name.endswith("rows") else 1
            speed, used = best.get(name, (0.0, np.inf))
            best[name] = max(speed, rows / wall / part), min(used, cpu * part / rows * 1e6)
    for name, (speed, used) in best.items():
        shown = "" if "Ray" in name else f"{used:8.1f} us"
        print(f"{name:45} {speed:12,.0f} images/s {shown}")
    ray.shutdown()


if __name__ == "__main__":
    main()
