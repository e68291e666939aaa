"""NVIDIA DALI on the CPU; its reader of TFRecord parses Examples and needs an index of each file."""

import nvidia.dali.fn as fn
import nvidia.dali.tfrecord as tfrecord
import nvidia.dali.types as types
from nvidia.dali import pipeline_def

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import TABLE, converted
from shardkeep.tfrecord import Reader, build_index

IMAGE = {"image_raw": tfrecord.FixedLenFeature((), tfrecord.string, "")}
LABEL = {"label": tfrecord.FixedLenFeature([1], tfrecord.int64, 0)}
COLUMNS = {
    name: tfrecord.FixedLenFeature([1], *((tfrecord.float32, 0.0) if name[0] == "f" else (tfrecord.int64, 0)))
    for name in TABLE
}


def convert(files, folder):
    """Write the offset and the length of each record, as its tfrecord2idx does."""
    for number, path in enumerate(files):
        at, lines = 0, []
        for record in Reader(path):
            lines.append(f"{at} {len(record) + 16}\n")
            at += len(record) + 16
        with open(f"{folder}/{number:03d}.idx", "w", encoding="ascii") as file:
            file.writelines(lines)


def prepare(files):
    folder = converted(files, "dali", convert)
    return [*files, *(f"{folder}/{number:03d}.idx" for number in range(len(files)))]


@pipeline_def(num_threads=2, device_id=None, prefetch_queue_depth=2)
def rows(files, features, buffer, pixels):
    half = len(files) // 2
    options = {"random_shuffle": bool(buffer), "initial_fill": max(buffer, 1), "name": "reader"}
    row = fn.readers.tfrecord(path=files[:half], index_path=files[half:], features=features, **options)
    if pixels:
        image = fn.decoders.image(row.pop("image_raw"), device="cpu")
        return fn.cast(image, dtype=types.FLOAT) / 255.0 if pixels == "float32" else image, *row.values()
    return tuple(row.values())


def batches(files, batch, features, buffer=0, pixels="", **options):
    """Yield the batches of an epoch; the last one is filled with the records of the next."""
    pipe = rows(files, features, buffer, pixels, batch_size=batch, **options)
    pipe.build()
    for _ in range(-(-pipe.epoch_size("reader") // batch)):
        yield pipe.run()[0], pipe


def drained(features, **options):
    def run(files, batch, most):
        found = take(batches(files, batch, features, **options), most, lambda one: len(one[0]))
        records = sum(1 for path in files[len(files) // 2 :] for _ in open(path))  # noqa: SIM115
        return min(found, records)

    return run


def resume(files, batch, most):
    options = {"features": IMAGE, "buffer": 60_000, "enable_checkpointing": True}
    records = sum(index.records for index in build_index(files[: len(files) // 2]))
    for number, (_, pipe) in enumerate(batches(files, batch, **options)):
        if number == records // batch // 2:
            state = pipe.checkpoint()
            break
    yield
    next(batches(files, batch, checkpoint=state, **options))
    yield 1


JOBS = {
    "raw": drained(IMAGE),
    "shuffled": drained(IMAGE, buffer=60_000),
    "table": drained(COLUMNS),
    "png": drained(IMAGE | LABEL, pixels="float32"),
    "jpeg": drained(IMAGE | LABEL, pixels="uint8"),
    "resume": resume,
}

if __name__ == "__main__":
    serve(JOBS, "nvidia-dali-cuda120", prepare)
