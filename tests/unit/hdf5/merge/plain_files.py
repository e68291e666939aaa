"""Plain HDF5 files that tests merge."""

import h5py


def write_file(path, **datasets):
    """Write an HDF5 file; a dataset is its rows, or (rows, options)."""
    with h5py.File(path, "w") as file:
        for name, rows in datasets.items():
            rows, options = rows if isinstance(rows, tuple) else (rows, {})
            file.create_dataset(name.replace("__", "/"), data=rows, **options)
    return path


def read(path, name="x"):
    with h5py.File(path) as file:
        return file[name][()]
