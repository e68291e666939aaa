"""Ray Data's read_tfrecords, which parses with TensorFlow."""

import functools

import ray
import ray.data

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import head


@functools.cache
def started():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=500 << 20, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False


def table(files, batch, most):
    started()
    yield
    rows = ray.data.read_tfrecords(files, file_extensions=None).iter_batches(batch_size=batch)
    yield take(rows, most, lambda batch: len(batch["label"]))


if __name__ == "__main__":
    serve({"table": table}, "ray tensorflow-cpu", head)
