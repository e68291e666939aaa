"""Creation of what clients declare: completely or not at all, and refused if HDF5 cannot keep it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Container, Iterator

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import check_name_length
from shardkeep.collector.protocol.schema import FilterSpec, Schema
from shardkeep.errors import InternalError, SchemaError, ShardkeepError
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.compression import require_filter
from shardkeep.hdf5.storage.layout import Layout, create_dataset
from shardkeep.hdf5.storage.names import check_name

__all__ = [
    "check_new_name",
    "chunk_shape",
    "create",
    "first_missing",
    "groups_of",
    "removed_on_error",
    "schema_errors",
    "try_filters",
]

_TRIAL_BYTES = 1 << 20
# The filters of `compression_filters`, and the checksum of HDF5 itself.
_KNOWN = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
    32015,  # zstd
    32026,  # blosc2
}
_MOST_PARAMETERS = 16


def groups_of(name: str) -> list[str]:
    """Return the groups that contain an object, the outermost first.

    Examples
    --------
    >>> groups_of("a/b/c")
    ['a', 'a/b']
    """
    return [name[:place] for place, letter in enumerate(name) if letter == "/"]


def first_missing(name: str, known: Container[str]) -> str | None:
    """Return the outermost group of an object, or the object, that does not exist; None if all do.

    Parameters
    ----------
    name : str
    known : container of str
        The file, or a set of its names: asking HDF5 for a name takes as long as creating a dataset.

    Examples
    --------
    >>> first_missing("a/b/c", {"a"})
    'a/b'
    """
    return next((one for one in (*groups_of(name), name) if one not in known), None)


def check_new_name(name: str, groups: set[str], *used: Collection[str]) -> None:
    """Raise `SchemaError` for a name that is not valid, or would be a dataset and a group at once.

    Parameters
    ----------
    name : str
    groups : set of str
        The groups of the file.
    *used : collection of str
        The names of its datasets: sets, since each of many thousands is compared with all before it.
    """
    check_name_length(name)
    if name in groups or any(group in names for group in groups_of(name) for names in used):
        check_name(name, [one for names in used for one in names])
    else:
        check_name(name, ())


@contextlib.contextmanager
def removed_on_error(file: h5py.File, *missing: str | None) -> Iterator[None]:
    """Remove these objects, which did not exist before, if the body raises.

    Raises
    ------
    InternalError
        They cannot be removed: the file has to be abandoned.
    """
    try:
        yield
    except BaseException as error:
        try:
            for name in missing:
                if name is not None and name in file:
                    del file[name]
        except Exception as second:
            message = f"{file.filename!r} holds half of an object ({error}; {second})"
            raise InternalError(f"{message}: the collector returns to its last commit") from error
        raise


@contextlib.contextmanager
def schema_errors(what: str) -> Iterator[None]:
    """Raise any error of HDF5, h5py and NumPy in the body as `SchemaError`.

    The types and values come from clients, and must not end the collector. Shardkeep's errors pass.
    """
    try:
        yield
    except ShardkeepError:
        raise
    except Exception as error:
        raise SchemaError(f"{what} ({first_line(error)}): use another type or value") from error


def chunk_shape(wanted: Schema) -> tuple[int, ...]:
    """Return the shape of the chunks of a new dataset."""
    if wanted.rows is None and 0 in wanted.row_shape:
        return 1024, *(max(size, 1) for size in wanted.row_shape)
    chunk_rows = wanted.chunk_rows if wanted.rows is None else max(min(wanted.chunk_rows, wanted.rows), 1)
    return chunk_rows, *wanted.row_shape


def create(file: h5py.File, wanted: Schema) -> h5py.Dataset:
    """Create a dataset as it was declared; errors are those of HDF5 and h5py."""
    code = h5py.h5t.py_create(wanted.dtype, logical=True).encode()
    if wanted.rows is None and 0 in wanted.row_shape:
        shape = (0, *wanted.row_shape)
        limits = (None,) * len(shape)
        return file.create_dataset(
            wanted.name, shape=shape, maxshape=limits, chunks=chunk_shape(wanted), dtype=wanted.dtype
        )
    layout = Layout(code, chunk_shape(wanted), wanted.filters, b"", not wanted.dtype.hasobject)
    return create_dataset(file, wanted.name, layout, (wanted.rows or 0, *wanted.row_shape))


def try_filters(wanted: Schema) -> None:
    """Write one chunk in memory through the filters, which shows whether their parameters are valid.

    Raises
    ------
    MissingExtraError
        HDF5 does not have one of the filters here; it would omit it silently.
    SchemaError
        Not a filter that Shardkeep compresses with: the parameters of others may crash the process.
    OSError, RuntimeError, ValueError
        As HDF5 and h5py raise them.
    """
    for code, _, values in wanted.filters:
        if code not in _KNOWN:
            raise SchemaError(f"dataset {wanted.name!r}: filter {code} is not used here: choose another")
        if len(values) > _MOST_PARAMETERS or max(values, default=0) >= 1 << 32:
            raise SchemaError(f"dataset {wanted.name!r}: filter {code} has no such parameters")
        require_filter(wanted.name, code)
    if wanted.filters and wanted.row_bytes:
        rows = max(min(wanted.chunk_rows, _TRIAL_BYTES // wanted.row_bytes), 1)
        type_code = h5py.h5t.py_create(wanted.dtype, logical=True).encode()
        _try(wanted.filters, type_code, (rows, *wanted.row_shape))


@functools.lru_cache(maxsize=64)
def _try(filters: tuple[FilterSpec, ...], type_code: bytes, chunk: tuple[int, ...]) -> None:
    dtype = h5py.h5t.decode(type_code).dtype
    with h5py.File("trial", "w", driver="core", backing_store=False, rdcc_nbytes=0) as file:
        dataset = create_dataset(file, "x", Layout(type_code, chunk, filters, b"", True), chunk)
        dataset[...] = np.zeros(chunk, dtype)
        file.flush()
