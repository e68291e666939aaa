"""rustfrecord, which parses every record into arrays, one record at a time."""

import itertools

import numpy as np
from rustfrecord import Reader

from benchmarks.peer_loop import serve, take
from benchmarks.workloads import TABLE


def rows(files, features):
    return itertools.chain.from_iterable(Reader(path, False, features) for path in files)


def raw(files, batch, most):
    """Read the image of each record, since it has no raw records."""
    return take(rows(files, ["image_raw"]), most, lambda row: 1)


def table(files, batch, most):
    found, records = rows(files, list(TABLE)), 0
    while part := list(itertools.islice(found, batch)):
        records += len({name: np.stack([row[name] for row in part]) for name in TABLE}["label"])
        if most and records >= most:
            break
    return records


JOBS = {"raw": raw, "table": table}

if __name__ == "__main__":
    serve(JOBS, "rustfrecord")
