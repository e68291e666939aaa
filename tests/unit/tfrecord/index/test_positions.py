"""Packed offsets of many shards, and the index of a data set that is mapped.

Covers `shardkeep.tfrecord.index.dataset_file`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import Engine, RecordFile, RecordPositions, crc32c
from shardkeep.errors import CorruptRecordError, NotFoundError, PlanError
from shardkeep.loader import Loader
from shardkeep.loader.dataset import open_shards
from shardkeep.tfrecord import Writer
from shardkeep.tfrecord.index import dataset_file, positions
from shardkeep.tfrecord.index.positions import load_positions
from shardkeep.world import World

Starts = npt.NDArray[np.uint64]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Store an index for every data set, in a folder of the test."""
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(positions, "_WORTH_FILES", 1)
    monkeypatch.setattr(dataset_file, "_UNSAFE_NS", 0)
    return tmp_path / "cache"


def shards(folder: Path, counts: Sequence[int]) -> list[str]:
    folder.mkdir(exist_ok=True)
    paths = []
    for i, count in enumerate(counts):
        paths.append(str(folder / f"{i}.tfrecord"))
        with Writer(paths[-1]) as w:
            for number in range(count):
                w.write(bytes([i]) * (number * 7 % 300))
    return paths


def starts_of(lengths: Sequence[int]) -> Starts:
    return np.concatenate([np.zeros(1, np.uint64), np.cumsum(np.array(lengths, np.uint64) + np.uint64(16))])


def found(packed: RecordPositions) -> list[list[int]]:
    return [packed.starts(shard).tolist() for shard in range(len(packed))]


def stored(cache: Path) -> list[Path]:
    return sorted(cache.glob("*.skset"))


def unscannable(*args: object, **kwargs: object) -> Any:
    raise AssertionError("the shards were scanned")


_LENGTHS = st.one_of(st.integers(0, 200), st.integers(0, 1 << 16), st.integers(0, 1 << 40))


@given(st.lists(st.lists(_LENGTHS, max_size=200), max_size=5))
def test_packed_offsets_are_the_plain_ones(shards: list[list[int]]) -> None:
    plain = [starts_of(lengths) for lengths in shards]
    packed = RecordPositions(plain)
    joined = RecordPositions.joined([RecordPositions([one]) for one in plain])
    for some in (packed, joined):
        assert found(some) == [one.tolist() for one in plain]
        assert some.records.tolist() == [len(lengths) for lengths in shards]
        assert some.sizes_bytes.tolist() == [int(one[-1]) for one in plain]
        assert some.checksums.tolist() == [crc32c(one.view(np.uint8)) for one in plain]
    assert packed.packed() == joined.packed()


def test_a_record_takes_less_than_three_bytes() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(7, 1, 100_000).astype(int)
    assert len(RecordPositions([starts_of(lengths.tolist())]).packed()) < 2.5 * len(lengths)
    lengths[77_777] = 1 << 22
    assert len(RecordPositions([starts_of(lengths.tolist())]).packed()) < 3.1 * len(lengths)


def test_offsets_that_do_not_ascend_are_refused() -> None:
    for wrong in ([], [5, 5], [0, 30, 20]):
        with pytest.raises(Exception, match="do not ascend"):
            RecordPositions([np.array(wrong, np.uint64)])
    with pytest.raises(IndexError, match="no shard 1"):
        RecordPositions([starts_of([1])]).starts(1)
    with pytest.raises(ValueError, match="2 paths, and offsets of 1 shards"):
        Engine(["a", "b"], [starts_of([1])])


def test_a_shard_of_several_is_read_by_number(tmp_path: Path) -> None:
    paths = shards(tmp_path, [3, 0, 200])
    packed = load_positions(paths)
    file = RecordFile(paths[2], packed, 2)
    assert [len(record) for record in file.read_many(np.array([199, 0], np.uint64))] == [193, 0]


def test_the_index_of_a_data_set_is_mapped(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = shards(tmp_path / "data", [3, 0, 200])
    first = load_positions(paths)
    monkeypatch.setattr(positions, "load_indexes", unscannable)
    again = load_positions(paths)
    assert found(first) == found(again)
    assert first.checksums.tolist() == again.checksums.tolist()
    [file] = stored(cache)
    assert oct(file.stat().st_mode)[-3:] == "600"
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(file.name) == 2
    del first, again
    assert file.name not in Path("/proc/self/maps").read_text()
    with pytest.raises(AssertionError, match="scanned"):
        load_positions(paths[:2])


def test_the_fingerprint_is_the_same_with_and_without_an_index(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = shards(tmp_path / "data", [3, 0, 200])
    mapped = open_shards(paths)
    assert stored(cache)
    monkeypatch.setenv("SHARDKEEP_INDEX", "off")
    assert open_shards(paths).identity == mapped.identity
    assert mapped.identity.shards == ("0.tfrecord", "1.tfrecord", "2.tfrecord")


@pytest.mark.parametrize("change", ["longer", "same size", "touched", "removed", "damaged"])
def test_an_index_of_other_shards_is_not_used(tmp_path: Path, cache: Path, change: str) -> None:
    paths = shards(tmp_path / "data", [3, 50])
    load_positions(paths)
    path, before = Path(paths[1]), os.stat(paths[1])
    content = path.read_bytes()
    if change == "removed":
        path.unlink()
        with pytest.raises(NotFoundError):
            load_positions(paths)
        return
    if change == "damaged":
        path.write_bytes(b"x" + content[1:])
        with pytest.raises(CorruptRecordError):
            load_positions(paths)
        return
    if change == "longer":
        with Writer(path, exists="append") as w:
            w.write(b"more")
    elif change == "same size":
        with Writer(path, exists="replace") as w:
            w.write(bytes(len(content) - 16))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    else:
        os.utime(path)
    records = {"longer": 51, "same size": 1, "touched": 50}[change]
    assert load_positions(paths).records.tolist() == [3, records]
    assert len(stored(cache)) == 1


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _flipped(data: bytes) -> bytes:
    return data[:40] + bytes([data[40] ^ 1]) + data[41:]


def _of_another_version(data: bytes) -> bytes:
    return data[:8] + b"\2" + data[9:]


@pytest.mark.parametrize(
    "damage", [_cut, _flipped, _of_another_version, lambda _: b"", lambda _: b"\x89SKSET\r\n", bytes.swapcase]
)
def test_a_damaged_index_is_ignored_and_stored_again(tmp_path: Path, cache: Path, damage: Any) -> None:
    paths = shards(tmp_path / "data", [3, 50])
    want = found(load_positions(paths))
    [file] = stored(cache)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert found(load_positions(paths)) == want
    assert file.read_bytes() == whole


def test_a_foreign_index_is_not_used(tmp_path: Path, cache: Path) -> None:
    paths = shards(tmp_path / "data", [3, 50])
    load_positions(paths)
    [file] = stored(cache)
    file.chmod(0o666)
    file.rename(file.with_suffix(".kept"))
    file.symlink_to(file.with_suffix(".kept"))
    assert load_positions(paths).records.tolist() == [3, 50]
    assert not file.is_symlink()


def test_a_shard_that_changed_just_now_is_not_stored(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_file, "_UNSAFE_NS", 3600 * 10**9)
    assert load_positions(shards(tmp_path / "data", [3])).records.tolist() == [3]
    assert not stored(cache)


def test_a_shard_that_grows_during_the_scan_is_not_stored(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = shards(tmp_path / "data", [3, 50])
    plain = positions.load_indexes

    def grows(*args: Any, **kwargs: Any) -> Any:
        with Writer(paths[0], exists="append") as w:
            w.write(b"more")
        return plain(*args, **kwargs)

    monkeypatch.setattr(positions, "load_indexes", grows)
    assert load_positions(paths).records.tolist() == [5, 50]
    assert not stored(cache)


@pytest.mark.parametrize("fault", ["off", "no folder", "remote", "full"])
def test_without_an_index_the_offsets_are_in_memory(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    paths = shards(tmp_path / "data", [3, 50])
    if fault == "off":
        monkeypatch.setenv("SHARDKEEP_INDEX", "off")
    elif fault == "no folder":
        (tmp_path / "file").write_bytes(b"")
        monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(tmp_path / "file"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    elif fault == "remote":
        monkeypatch.setattr(dataset_file, "is_of_one_kernel", lambda folder: False)
    else:
        monkeypatch.setattr(dataset_file, "publish_sidecar", _full)
    assert load_positions(paths).records.tolist() == [3, 50]
    assert not stored(cache)


def _full(*args: object, **kwargs: object) -> Any:
    raise OSError(28, os.strerror(28))


def test_a_remote_cache_folder_is_replaced_by_the_one_for_temporary_files(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(dataset_file, "is_of_one_kernel", lambda folder: folder != str(cache))
    load_positions(shards(tmp_path / "data", [3]))
    assert not stored(cache)
    assert len(stored(tmp_path / f"shardkeep-{os.geteuid()}")) == 1


def test_a_wrong_mode_is_an_error(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", "sometimes")
    with pytest.raises(PlanError, match="sometimes"):
        load_positions(shards(tmp_path / "data", [3]))


def test_a_loader_reads_all_records_by_a_mapped_index(tmp_path: Path, cache: Path) -> None:
    paths = shards(tmp_path / "data", [0, 130, 1, 64, 0])
    want = sorted((shard, index) for shard, count in enumerate([0, 130, 1, 64, 0]) for index in range(count))
    for shuffle in (False, "blocks", "global"):
        loader = Loader(paths, batch_size=9, world=World(), shuffle=shuffle, with_ids=True, remainder="short")
        batches = list(loader)
        ids = [
            pair
            for batch in batches
            for pair in zip(batch["shard"].tolist(), batch["index"].tolist(), strict=True)
        ]
        assert sorted(ids) == want
    assert stored(cache)
    shutil.rmtree(cache)  # a mapped file stays readable without its name
    assert sum(len(batch["shard"]) for batch in loader) == len(want)
