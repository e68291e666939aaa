"""SPDL: tar files and images in its pipeline of threads."""

import itertools

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import tars


def members(path):
    with open(path, "rb") as file:
        data = file.read()
    return (bytes(content) for name, content in spdl.io.iter_tarfile(data) if name[-3:] in ("bin", "png"))


def pipeline(files, batch, decode=None):
    """Return a pipeline whose items are batches of a file, since many small items are slow."""

    def batches(path):
        found = members(path)
        while rows := list(itertools.islice(found, batch)):
            yield rows

    steps = PipelineBuilder().add_source(files).pipe(batches, concurrency=2)
    if decode:
        steps = steps.pipe(decode, concurrency=2)
    return steps.add_sink(4).build(num_threads=3)


def pixels(images):
    buffer = spdl.io.load_image_batch(images, width=32, height=32)
    return spdl.io.to_numpy(buffer).astype(np.float32) / 255


def raw(files, batch, most):
    batches = pipeline(files[: len(files) // 2], batch)
    with batches.auto_stop():
        return take(batches, most)


def png(files, batch, most):
    try:
        spdl.io.load_image(next(members(files[-1])))
    except Exception as error:  # its pipeline would drop every image
        raise RuntimeError("needs the libraries of FFmpeg, which are not in its wheel") from error
    yield
    batches = pipeline(files[len(files) // 2 :], batch, pixels)
    with batches.auto_stop():
        yield take(batches, most)


JOBS = {"raw": raw, "png": png}

if __name__ == "__main__":
    serve(JOBS, "spdl", tars)
