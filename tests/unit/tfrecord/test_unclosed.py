"""Writers that are dropped without `close`."""

import gc
import os

import pytest

from shardkeep.files.budget import budget
from shardkeep.tfrecord import Reader, ShardWriter, Writer, shard_writer
from tests.descriptors import open_descriptors


@pytest.fixture(autouse=True)
def _only_references_count():
    # A writer in a cycle would be reported much later, at another line.
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("exists", ["fail", "replace"])
def test_a_dropped_writer_is_reported_and_leaves_nothing(tmp_path, exists):
    before = open_descriptors()
    writer = Writer(tmp_path / "a.tfrecord", exists=exists)
    writer.write(b"1")
    writer.write(b"2")
    with pytest.warns(RuntimeWarning, match=r"a\.tfrecord' was never closed.*lost records: 2") as told:
        del writer
    assert told[0].filename == __file__
    assert os.listdir(tmp_path) == []
    assert open_descriptors() == before


def test_an_old_file_stays(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    writer = Writer(tmp_path / "a", exists="replace")
    with pytest.warns(RuntimeWarning, match="lost records: 0"):
        del writer
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_appended_records_stay(tmp_path):
    writer = Writer(tmp_path / "a", exists="append")
    writer.write(b"1")
    with pytest.warns(RuntimeWarning, match="was never closed.*appended records: 1"):
        del writer
    assert list(Reader(tmp_path / "a")) == [b"1"]
    assert os.listdir(tmp_path) == ["a"]


def _many(monkeypatch):
    monkeypatch.setattr(shard_writer, "_SHARE_OF_RESERVE", budget().reserve)
    return {"shards": 5}


@pytest.mark.parametrize(
    "options",
    [lambda _: {"shards": 3}, lambda _: {"shard_records": 2}, lambda _: {"compression": "gzip"}, _many],
    ids=["shards", "rolling", "gzip", "buffered"],
)
def test_a_dropped_set_is_reported_and_leaves_nothing(tmp_path, monkeypatch, options):
    before = open_descriptors()
    writer = ShardWriter(tmp_path / "{shard}-of-{shards}", **options(monkeypatch))
    for _ in range(7):
        writer.write(b"1")
    with pytest.warns(RuntimeWarning, match="of-{shards}' was never closed.*lost records: 7"):
        del writer
    assert os.listdir(tmp_path) == []
    assert open_descriptors() == before


def test_a_closed_or_aborted_writer_is_silent(tmp_path):
    for number, end in enumerate([Writer.close, Writer.abort]):
        writer = Writer(tmp_path / f"{number}")
        end(writer)
        del writer
    for number, end in enumerate([ShardWriter.close, ShardWriter.abort]):
        writer = ShardWriter(tmp_path / f"{number}-{{shard}}", shards=1)
        end(writer)
        del writer
    assert sorted(os.listdir(tmp_path)) == ["0", "0-0"]


def test_a_failed_close_is_not_reported_again(tmp_path):
    writer = Writer(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"rival")
    with pytest.raises(FileExistsError):
        writer.close()
    del writer
    assert os.listdir(tmp_path) == ["a"]


def test_a_writer_that_was_refused_is_silent(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        Writer(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]


def test_a_dropped_writer_frees_its_lock(tmp_path):
    writer = Writer(tmp_path / "a")
    with pytest.warns(RuntimeWarning, match="was never closed"):
        del writer
    with Writer(tmp_path / "a") as again:
        again.write(b"1")
