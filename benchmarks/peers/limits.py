"""The limits of the machine: what reading, copying and checksums cost on all cores, without any format."""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.peer_loop import serve
from shardkeep._core import crc32c
from shardkeep.tfrecord import Reader


def limit(work):
    """Return a job that reads all files and does `work(bytes, free buffer)` with each megabyte."""

    def read(path):
        buffer, other = np.empty(1 << 20, np.uint8), np.empty(1 << 20, np.uint8)
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                work(buffer[:count], other[:count])

    def run(files, batch, most):
        records = sum(len(Reader(path)) for path in files)
        yield
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(read, files))
        yield records

    return run


JOBS = {
    "read": limit(lambda data, other: None),
    "memcpy": limit(lambda data, other: np.copyto(other, data)),
    "crc": limit(lambda data, other: crc32c(data)),
    "zlib crc": limit(lambda data, other: zlib.crc32(data)),
}

if __name__ == "__main__":
    serve(JOBS)
