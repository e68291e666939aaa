from __future__ import annotations

import multiprocessing
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.adapters.random_access import Records, Rows
from tests.frameworks.exactly_once import RECORDS, write_shards

ALL = {"x": sk.FixedLen(), "s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    return write_shards(tmp_path)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "rows.h5"
    with sk.hdf5.open(path, "w") as f:
        f.create_dataset("x", data=np.arange(600).reshape(100, 3, 2), chunks=(8, 3, 2))
        f["label"] = np.arange(100) * 10
        f["text"] = [f"row {i}" for i in range(100)]
        f.create_group("other")["short"] = np.arange(5)
    return path


def test_records_come_in_the_order_of_the_request_from_any_shard(paths: list[str]) -> None:
    records = Records(paths, {"x": sk.FixedLen()})
    assert len(records) == RECORDS
    wanted = [150, 0, 209, 7, 150, -1, 46]
    assert [int(row["x"]) for row in records.__getitems__(wanted)] == [150, 0, 209, 7, 150, 209, 46]
    assert int(records[-RECORDS]["x"]) == 0
    assert records.__getitems__([]) == []


def test_a_record_without_features_is_its_bytes(paths: list[str]) -> None:
    records = Records(paths)
    assert sk.tfrecord.decode_example(records[9])["x"].tolist() == [9]
    assert [sk.tfrecord.decode_example(record)["x"][0] for record in records] == list(range(RECORDS))


def test_a_record_has_numbers_bytes_and_rows_of_any_length(paths: list[str]) -> None:
    record = Records(paths, ALL)[5]
    assert (int(record["x"]), record["s"], record["v"].tolist()) == (5, b"ss", [1.5, 1.5])


@pytest.mark.parametrize("index", [RECORDS, -RECORDS - 1, 1 << 40])
def test_a_number_beyond_the_records_is_an_index_error(paths: list[str], index: int) -> None:
    with pytest.raises(IndexError, match=f"record {index} does not exist: there are {RECORDS}"):
        Records(paths)[index]


def test_records_are_small_when_pickled_and_read_after_it(paths: list[str]) -> None:
    records = Records(paths, ALL)
    stored = pickle.dumps(records)
    assert len(stored) < 2500
    assert pickle.loads(stored)[100]["x"] == records[100]["x"]
    assert repr(pickle.loads(stored)) == repr(records)


def test_shards_that_changed_after_pickling_are_refused(paths: list[str]) -> None:
    stored = pickle.dumps(Records(paths))
    with sk.tfrecord.Writer(paths[0], exists="replace") as w:
        w.write_example({"x": 1})
    with pytest.raises(sk.PlanError, match="has changed since it was pickled"):
        len(pickle.loads(stored))


def test_a_damaged_record_is_named_with_its_shard(paths: list[str]) -> None:
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    Path(paths[3]).write_bytes(content)
    records = Records(paths, {"x": sk.FixedLen()})
    with pytest.raises(sk.CorruptRecordError) as caught:
        records.__getitems__(range(RECORDS))
    assert caught.value.path == paths[3]


def test_a_record_of_another_kind_is_named_with_its_number(paths: list[str]) -> None:
    records = Records(paths, {"x": sk.FixedLen(dtype="float32")})
    with pytest.raises(sk.SchemaError, match=r"record 2\b"):
        records[9]


def test_threads_share_records(paths: list[str]) -> None:
    records = Records(paths, {"x": sk.FixedLen()})
    with ThreadPoolExecutor(8) as threads:
        assert [int(row["x"]) for row in threads.map(records.__getitem__, range(RECORDS))] == list(
            range(RECORDS)
        )


def test_rows_come_in_the_order_of_the_request(results: Path) -> None:
    rows = Rows(results)
    assert len(rows) == 100
    assert rows.names == ["label", "text", "x"]
    wanted = [50, 3, 4, 5, -1, 3]
    found = rows.__getitems__(wanted)
    assert [int(row["label"]) for row in found] == [500, 30, 40, 50, 990, 30]
    assert [row["text"] for row in found][:2] == [b"row 50", b"row 3"]
    assert found[1]["x"].tolist() == np.arange(18, 24).reshape(3, 2).tolist()
    assert rows.__getitems__([]) == []
    with pytest.raises(IndexError, match="row 100 does not exist"):
        rows[100]


def test_datasets_of_other_lengths_are_refused(results: Path) -> None:
    with pytest.raises(sk.SchemaError, match=r"'x' 100, 'other/short' 5.*pass names="):
        Rows(results, ["x", "other/short"])
    with pytest.raises(sk.SchemaError, match="dataset 'y' does not exist"):
        Rows(results, "y")
    with pytest.raises(sk.SchemaError, match="dataset 'other' has no rows"):
        Rows(results, "other")
    with pytest.raises(sk.SchemaError, match="no dataset"):
        Rows(results, [])
    assert len(Rows(results, "other/short")) == 5


def _labels(rows: Rows, numbers: list[int]) -> list[int]:
    return [int(row["label"]) for row in rows.__getitems__(numbers)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_rows_cross_to_other_processes(results: Path, method: str) -> None:
    rows = Rows(results, ["label", "x"])
    rows[0]  # the parent has opened its handle
    assert len(pickle.dumps(rows)) < 1500
    with multiprocessing.get_context(method).Pool(2) as pool:
        parts = pool.starmap(_labels, [(rows, list(range(k, 100, 2))) for k in range(2)])
    assert sorted(parts[0] + parts[1]) == [10 * i for i in range(100)]
