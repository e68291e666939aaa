"""PyTables: appending of the rows of HDF5 files to one, in chunks of the same filter."""

import os

import tables

from benchmarks.peer_loop import serve


def merge(files, batch, most):
    output = f"{os.path.dirname(os.path.abspath(files[0]))}.pytables"
    part = files[: most or len(files)]
    yield
    with tables.open_file(output, "w") as file:
        found = None
        for path in part:
            with tables.open_file(path) as source:
                rows = source.root.x
                if found is None:
                    options = {
                        "filters": tables.Filters(1, "zlib", shuffle=True),
                        "chunkshape": rows.chunkshape,
                    }
                    found = file.create_earray("/", "x", rows.atom, (0, *rows.shape[1:]), **options)
                found.append(rows[:])
    with open(output, "rb") as file:
        os.fsync(file.fileno())
    yield len(part)


if __name__ == "__main__":
    serve({"merge": merge}, "tables")
