"""Merges of random HDF5 files, in every mode, compared with h5py value by value.

Covers `shardkeep.hdf5.merge.merge` and `shardkeep.hdf5.storage.byte_order`.
"""

import re
import warnings

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError, ShardkeepError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.content_hash import content_crc
from tests.unit.hdf5.merge.random_layouts import Series

FILES = 3
REFUSED = re.compile("in the order of a key|which HDF5 does not read as")
SOME, MANY = 100, 1700  # of three files each


@pytest.mark.parametrize("first", range(0, SOME, 25))
def test_random_layouts(tmp_path, first):
    for seed in range(first, first + 25):
        check_one(tmp_path, seed, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SOME, MANY, 100))
def test_many_random_layouts(tmp_path, first):
    for seed in range(first, first + 100):
        check_one(tmp_path, seed)


def check_one(folder, seed, *, every=True):
    series = Series(seed)
    paths = [folder / f"{seed}-{number}.h5" for number in range(FILES)]
    series.write(paths)
    ways = [
        (mode, order)
        for mode in ("copy", "virtual")
        for order in (("rank", "key") if series.keyed else ("rank",))
    ]
    for mode, order in ways if every else [series.random.choice(ways)]:
        check_merge(series, paths, folder, f"{seed}-{mode}-{order}", mode, order)
    for path in paths:
        path.unlink()


def check_merge(series, paths, folder, label, mode, order):
    target = folder / f"{label}.h5"
    options = {"mode": mode, "order_by": order, "on_mismatch": "promote" if series.wider else "refuse"}
    extent = series.random.choice(["sample", "full"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            merge(paths, target, dry_run=True, **options)
        except ShardkeepError as error:
            refused(label, error, paths, target, options)
            return
        report = merge(paths, target, check=extent, incomplete="allow", **options)
    places = key_order(paths) if order == "key" else None
    with h5py.File(target) as file:
        for name in series.datasets:
            expected = rows_of(paths, name, file[name].dtype)
            if places is not None:
                expected = expected[places]
            found = in_stored_order(file[name][()], file[name].dtype)
            assert expected.dtype == found.dtype and expected.shape == found.shape, (label, name)
            assert content_crc(expected) == content_crc(found), (label, name)
            if name in report.compared:  # not another name of a dataset
                compared = report.compared[name]
                assert 0 < compared <= len(expected), (label, name)
                assert extent == "sample" or compared == len(expected), (label, name)
    if extent == "full":
        found = verify(target)
        assert found.ok, (label, found.findings)
    target.unlink()


def refused(label, error, paths, target, options):
    """A merge that the dry run refuses ends the same way, and writes nothing."""
    with pytest.raises(type(error)):
        merge(paths, target, **options)
    assert not target.exists(), label
    assert isinstance(error, SchemaError) and REFUSED.search(str(error)), (label, error)


def rows_of(paths, name, dtype):
    parts = []
    for path in paths:
        with h5py.File(path) as file:
            parts.append(in_stored_order(file[name][()], file[name].dtype).astype(dtype.base))
    return np.concatenate(parts).astype(dtype.base, copy=False)


def key_order(paths):
    keys = []
    for path in paths:
        with h5py.File(path) as file:
            keys.append(file["key"][()])
    return np.argsort(np.concatenate(keys), kind="stable")
