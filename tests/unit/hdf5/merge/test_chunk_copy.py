"""Chunks on their way into a merged file: their places, their hashes, and what can fail.

Covers `shardkeep.files.positioned`, `shardkeep.files.writeback`, `shardkeep.hdf5.merge.copy` and
`shardkeep.hdf5.merge.dataset_writer`.
"""

from __future__ import annotations

import errno
import itertools
import os

import h5py
import numpy as np
import pytest

from shardkeep._core import ChunkCopier, crc32c
from shardkeep.errors import CorruptDataError, DurabilityError, ShardkeepError
from shardkeep.files import positioned
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.merge import chunk_copy
from shardkeep.hdf5.merge.dataset_writer import DatasetWriter
from shardkeep.hdf5.sources import raw_file
from shardkeep.hdf5.sources.raw_file import RawFile
from shardkeep.hdf5.storage.chunk_table import read_chunk_table
from tests.descriptors import open_descriptors

ROWS, CHUNK_ROWS = 2048, 128


def make(folder, count, *, rows=ROWS, **options) -> tuple[list[str], np.ndarray]:
    """Write files of compressed chunks that stay about 60 KiB."""
    rng = np.random.default_rng(1)
    parts, paths = [], []
    for i in range(count):
        part = rng.integers(0, 2**31, (rows, 128), dtype="i4")
        paths.append(str(folder / f"{i}.h5"))
        with h5py.File(paths[-1], "w", **options) as file:
            file.create_dataset(
                "x", data=part, chunks=(CHUNK_ROWS, 128), compression="gzip", compression_opts=1
            )
        parts.append(part)
    return paths, np.concatenate(parts)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20, 1 << 30])
def test_all_chunks_are_copied(tmp_path, monkeypatch, part_bytes):
    monkeypatch.setattr(chunk_copy, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(raw_file, "_PART_BYTES", part_bytes)
    paths, whole = make(tmp_path, 5)
    before = open_descriptors()
    merge(paths, tmp_path / "all.h5")
    assert open_descriptors() == before
    with h5py.File(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)
    assert verify(tmp_path / "all.h5").ok


def test_chunks_of_files_with_a_user_block_are_copied(tmp_path):
    paths, whole = make(tmp_path, 2, rows=300, userblock_size=512)
    with pytest.warns(RuntimeWarning, match="user block"):
        merge(paths, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)


def test_chunks_go_through_hdf5_if_it_copies_the_placeholder(tmp_path, monkeypatch):
    """As a version might that copies a chunk first: then the bytes go through it."""
    numbers = itertools.count(1)
    monkeypatch.setattr(positioned, "_address", lambda data: next(numbers))
    added = []
    original = DatasetWriter.add_chunk

    def add_chunk(self, *args):
        added.append(1)
        original(self, *args)

    monkeypatch.setattr(DatasetWriter, "add_chunk", add_chunk)
    paths, whole = make(tmp_path, 2, rows=256)
    merge(paths, tmp_path / "all.h5")
    assert len(added) == 4
    with h5py.File(tmp_path / "all.h5") as file:
        np.testing.assert_array_equal(file["x"][:], whole)


@pytest.mark.parametrize(
    ("number", "disturb", "message"),
    [
        (1, lambda path: os.utime(path, ns=(1, 1)), r"1\.h5.*changed while it was merged"),
        (2, lambda path: os.truncate(path, 100_000), r"2\.h5.*in the middle of rows"),
    ],
    ids=["changed", "cut"],
)
def test_a_source_that_changes_during_the_copy_is_refused(tmp_path, monkeypatch, number, disturb, message):
    paths, _ = make(tmp_path, 6)
    original = RawFile.begin

    def begin(self, *args):
        if self._path == paths[number]:
            disturb(self._path)
        return original(self, *args)

    monkeypatch.setattr(RawFile, "begin", begin)
    before = open_descriptors()
    with pytest.raises(CorruptDataError, match=message):
        merge(paths, tmp_path / "all.h5")
    assert open_descriptors() == before
    assert sorted(os.listdir(tmp_path)) == [f"{i}.h5" for i in range(6)]


def test_a_result_that_cannot_be_written_is_not_kept(tmp_path, monkeypatch):
    paths, _ = make(tmp_path, 3)
    read_only = os.open(paths[0], os.O_RDONLY)
    original = RawFile.begin

    def elsewhere(self, copier, table, places, result_fd):
        return original(self, copier, table, places, read_only if places.max() >= 0 else result_fd)

    monkeypatch.setattr(RawFile, "begin", elsewhere)
    try:
        with pytest.raises(DurabilityError, match=r"cannot write .*all") as caught:
            merge(paths, tmp_path / "all.h5")
        assert caught.value.errno == errno.EBADF
    finally:
        os.close(read_only)
    assert sorted(os.listdir(tmp_path)) == [f"{i}.h5" for i in range(3)]


def test_an_address_beyond_the_end_is_refused(tmp_path):
    (path,), _ = make(tmp_path, 1, rows=256)
    with h5py.File(path) as file:
        table = read_chunk_table(file["x"].id)
    assert table is not None
    with open(path, "rb") as opened:
        raw = RawFile(opened.fileno(), path, int(table.addresses[1]))
        with pytest.raises(ShardkeepError, match="has an address beyond its end"):
            raw.crcs(table)
        content = opened.read()
        raw = RawFile(opened.fileno(), path, len(content))
        expected = [
            crc32c(content[a : a + n])
            for a, n in zip(table.addresses.tolist(), table.sizes.tolist(), strict=True)
        ]
        assert raw.crcs(table) == expected


def test_a_copier_in_a_forked_child_does_not_hang(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    one = np.array([1])
    with open(tmp_path / "a", "r+b") as file:
        copier = ChunkCopier(2)
        assert copier.begin(file.fileno(), file.fileno(), one, one, one - 2).wait()[1] is None
        pid = os.fork()
        if pid == 0:
            del copier
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        copy = copier.begin(file.fileno(), file.fileno(), one * 990, one * 11, one - 2)
        assert copy.wait()[1] == ("read", 990, 0)
        with pytest.raises(ShardkeepError, match="waited for before"):
            copy.wait()
        with pytest.raises(ValueError, match="negative"):
            copier.begin(file.fileno(), file.fileno(), -one, one, one)
        with pytest.raises(ValueError, match="equally long"):
            copier.begin(file.fileno(), file.fileno(), one, one, np.array([1, 2]))
        with pytest.raises(ValueError, match="descriptor"):
            copier.begin(-1, file.fileno(), one, one, one)
