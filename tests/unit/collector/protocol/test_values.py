"""Values that a client puts once, and attributes that it sets.

Covers `shardkeep.collector.store.stored_values`.
"""

import contextlib
import os
import time

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.collector.protocol.values import pack_attribute, pack_put, unpack_value
from shardkeep.errors import CollectorError, SchemaError
from shardkeep.hdf5 import WorkerFile, connect, merge
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.storage.attributes import as_attribute, read_attributes, same_value
from shardkeep.hdf5.storage.rows import as_value
from shardkeep.world import World
from tests.procs.collector_run import collecting, start, start_collector, stop
from tests.waiting import PATIENCE_S

MOST = 1 << 20
KIND = np.dtype([("name", h5py.string_dtype()), ("x", ">f4", (2,))])
RAGGED = np.empty(2, h5py.vlen_dtype("i4"))
RAGGED[0], RAGGED[1] = np.arange(3, dtype="i4"), np.arange(0, dtype="i4")
VALUES = {
    "number": 3,
    "half": np.float16(0.5),
    "text": "drei ☃",
    "words": ["one", "two", ""],
    "bytes": np.array([b"ab", b"c"]),
    "big": np.arange(12, dtype=">i8").reshape(3, 4),
    "nan": np.array([np.nan, -0.0]),
    "none": np.zeros((0, 3), "f4"),
    "flag": True,
    "complex": 1 + 2j,
    "enum": np.array([1, 0], h5py.enum_dtype({"OFF": 0, "ON": 1}, "u1")),
    "both": np.array([("a", [1, 2]), ("", [3, 4])], KIND),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_the_same_after_encoding(name):
    there = unpack_value(memoryview(pack_put("a/b", VALUES[name])), MOST)
    mine = as_value("", VALUES[name])
    assert (there.name, there.on) == ("a/b", None)
    assert same_value((there.value, there.dtype), (mine, mine.dtype))
    for value in (VALUES[name], RAGGED, h5py.Empty("f4")):
        there = unpack_value(memoryview(pack_attribute("key", value, "a")), MOST)
        assert (there.name, there.on) == ("key", "a")
        assert same_value((there.value, there.dtype), as_attribute("key", value))


def test_an_invalid_value_is_refused_by_the_client():
    for name in ("", "a//b", "_collector/x", 3):
        with pytest.raises(SchemaError):
            pack_put(name, 1)
    for name in ("", "_put", "DIMENSION_LIST"):
        with pytest.raises(SchemaError):
            pack_attribute(name, 1, "/")
    for value in (object(), np.datetime64("2020-01-01")):
        with pytest.raises(SchemaError):
            pack_put("x", value)


@given(st.binary(max_size=80), st.integers(0, 200), st.integers(0, 255))
def test_hostile_bytes_are_an_error_or_the_value_that_they_encode(garbage, place, value):
    whole = pack_attribute("key", ["one", "two"], "a").tobytes()
    for data in (garbage, whole[: place % len(whole)]):
        with pytest.raises(CollectorError):
            unpack_value(memoryview(data), MOST)
    changed = bytearray(whole)
    changed[place % len(whole)] = value
    with contextlib.suppress(CollectorError):
        there = unpack_value(memoryview(changed), MOST)
        again = unpack_value(memoryview(pack_attribute(there.name, there.value, there.on)), MOST)
        assert (again.name, again.on) == (there.name, there.on)
        assert same_value((again.value, again.dtype), (there.value, there.dtype))
        if bytes(changed) == whole:
            assert (there.name, there.on, there.value.tolist()) == ("key", "a", ["one", "two"])


def test_a_huge_shape_is_refused_before_memory_is_taken():
    head = b'{"put": "x", "dtype": "<f8", "shape": [1000000, 1000000]}'
    with pytest.raises(CollectorError, match="not valid"):
        unpack_value(memoryview(len(head).to_bytes(4, "little") + head), MOST)


def test_every_rank_may_put_the_same_value_and_no_other(tmp_path):
    path = tmp_path / "all.h5"
    with (
        collecting(path, durability="flush") as collector,
        collector.connect(World(rank=0, size=2)) as one,
        collector.connect(World(rank=1, size=2)) as two,
    ):
        one.append("loss", 0.5)
        one.set_attribute("unit", "m", on="later/rows")
        for client in (one, two):
            for name, value in VALUES.items():
                client.put(f"config/{name}", value)
                client.set_attribute(name, value)
            client.set_attribute("unit", "nats", on="loss")
            client.set_attribute("empty", h5py.Empty("f4"), on="loss")
            client.set_attribute("ragged", RAGGED, on="config/number")
            client.set_attribute("note", "a group", on="config")
            client.set_attribute("note", "of nothing", on="alone/inside")
            client.set_attribute("by", client.rank)
        with pytest.raises(SchemaError, match="was put before and was another one"):
            two.put("config/number", 4)
        with pytest.raises(SchemaError, match="another one"):
            two.put("config/number", np.int32(3))
        with pytest.raises(SchemaError, match="a dataset with rows"):
            two.put("loss", 4)
        with pytest.raises(SchemaError, match=r"is a group|a group at once"):
            two.put("config", 4)
        with pytest.raises(SchemaError, match="put once"):
            two.append("config/number", [1])
        with pytest.raises(SchemaError, match="group at once"):
            two.append("config/number/rows", [1])
        with pytest.raises(SchemaError, match="inside of a dataset"):
            two.set_attribute("x", 1, on="loss/x")
        with pytest.raises(SchemaError, match="too long for this collector"):
            two.put("much", np.zeros(20 << 20))
        two.append("later/rows", [1])
        two.append("loss", 0.25)
    with h5py.File(path) as file:
        for name, value in VALUES.items():
            mine = as_value("", value)
            dataset = file["config"][name]
            there = np.empty(dataset.shape, dataset.dtype)
            there[...] = dataset[()]
            assert same_value((there, dataset.dtype), (mine, mine.dtype)), name
            assert same_value(read_attributes(file)[0].values[name], as_attribute(name, value)), name
        assert file["loss"].attrs["unit"] == "nats"
        assert file["loss"].attrs["empty"] == h5py.Empty("f4")
        assert file["config/number"].attrs["ragged"][0].tolist() == [0, 1, 2]
        assert file["config"].attrs["note"] == "a group"
        assert file["alone/inside"].attrs["note"] == "of nothing"
        assert file["later/rows"].attrs["unit"] == "m"
        assert file.attrs["by"] == 1
        assert file["loss"][:].tolist() == [0.5, 0.25]
        assert "attributes" not in file["_collector"]


def test_values_survive_a_kill_of_collector_and_client(tmp_path):
    path = tmp_path / "all.h5"
    collector = start_collector(path)
    client = connect(tmp_path, World(rank=0, size=1), timeout_s=20)
    client.put("config", "a: 1")
    client.set_attribute("step", 7)
    client.set_attribute("unit", "m", on="x")
    collector.kill()
    assert collector.join() == -9
    again = start_collector(path)
    client.put("config", "a: 1")
    client.append("x", [1.0])
    with pytest.raises(SchemaError, match="another one"):
        client.put("config", "a: 2")
    client.close()
    stop(again)
    with h5py.File(path) as file:
        assert file["config"].asstr()[()] == "a: 1"
        assert file.attrs["step"] == 7
        assert file["x"].attrs["unit"] == "m"


def test_a_merge_treats_values_as_those_of_worker_files(tmp_path):
    with collecting(tmp_path / "a.h5") as collector, collector.connect(World(rank=0, size=1)) as client:
        client.put("config", ["a", "b"])
        client.set_attribute("unit", "m", on="x")
        client.append("x", [1.0, 2.0])
    with WorkerFile(tmp_path / "run", World(rank=0, size=1)) as out:
        out.put("config", ["a", "b"])
        out.append("x", [1.0, 2.0])
        out.set_attribute("unit", "m", on="x")
        out.commit(step=1)
    contents = []
    for sources in ([tmp_path / "a.h5"], tmp_path / "run"):
        target = tmp_path / f"{len(contents)}.h5"
        merge(sources, target)
        with h5py.File(target, libver=H5_VERSIONS) as file:
            contents.append(
                (
                    file["config"].asstr()[:].tolist(),
                    dict(file["config"].attrs),
                    file["x"][:].tolist(),
                    file["x"].attrs["unit"],
                )
            )
    assert contents[0] == contents[1]


def test_values_are_spilled_with_the_rows_without_a_collector(tmp_path):
    (tmp_path / "run").mkdir()
    options = {"on_full": "spill", "spill_dir": tmp_path / "spill", "timeout_s": 20}
    client = connect(tmp_path / "run", World(rank=0, size=1), **options)
    client.put("config", 3)
    client.append("x", [1.0])
    with collecting(tmp_path / "run/all.h5"):
        client.close()
    with h5py.File(tmp_path / "run/all.h5") as file:
        assert file["config"][()] == 3


def test_declared_attributes_do_not_replace_existing_ones(tmp_path):
    with (
        collecting(tmp_path / "a.h5", durability="flush") as collector,
        collector.connect(World(rank=0, size=2)) as one,
        collector.connect(World(rank=1, size=2)) as two,
    ):
        values = {**VALUES, "ragged": RAGGED, "empty": h5py.Empty("f4")}
        one.set_attribute("early", 1, on="y")
        one.declare(["x", "y"], "f4", attributes={**values, "early": 2})
        two.declare("x", "f4", attributes={"number": 4, "late": 5})
        two.set_attribute("half", 0.25, on="x")
        for bad in ({"_put": 1}, {"": 1}, {"DIMENSION_LIST": 1}, {"ok": 1, "bad": object()}, {3: 1}):
            with pytest.raises(SchemaError):
                one.declare("never", "f4", attributes=bad)
        with pytest.raises(SchemaError, match="too long for this collector"):
            one.declare("never", "f4", attributes={"much": np.zeros(20 << 20)})
    with h5py.File(tmp_path / "a.h5", libver=H5_VERSIONS) as file:
        assert set(file) == {"_collector", "x", "y"}
        for name in ("x", "y"):
            there = read_attributes(file[name])[0].values
            for key, value in values.items():
                if (name, key) != ("x", "half"):
                    assert same_value(there[key], as_attribute(key, value)), key
        assert (file["x"].attrs["late"], file["x"].attrs["half"]) == (5, 0.25)
        assert (file["x"].attrs["early"], file["y"].attrs["early"]) == (2, 1)


def _spilling(tmp_path):
    options = {"on_full": "spill", "spill_dir": tmp_path / "spill", "timeout_s": PATIENCE_S}
    return connect(tmp_path / "run", World(rank=0, size=1), **options)


def test_a_later_call_raises_the_refusal_of_a_value_that_was_not_awaited(tmp_path):
    path = tmp_path / "run/all.h5"
    (tmp_path / "run").mkdir()
    with collecting(path) as collector, collector.connect(World(rank=1, size=2)) as other:
        other.put("config", 4)
    client = _spilling(tmp_path)
    client.put("config", 3)  # without a collector
    client.append("x", [1.0])
    with collecting(path):
        with pytest.raises(SchemaError, match="reports: the value 'config' was put before"):
            client.flush()
        client.append("x", [2.0])
        client.put("config", 4)
        with pytest.raises(SchemaError, match="another one"):
            client.put("config", 3)
        client.close()
    with h5py.File(path) as file:
        assert (file["config"][()], file["x"][:].tolist()) == (4, [1.0, 2.0])


def _put_and_wait(write_end, tmp_path):
    client = _spilling(tmp_path)
    client.put("config", [1, 2])
    client.set_attribute("unit", "m", on="x")
    client.put("refused", 1)
    client.declare("x", "f4", attributes={"n": 7})
    client.append("x", [1.0])
    client._calls.sender.stop(0.0)
    client._calls.sender.join()
    os.write(write_end, b"kept")
    time.sleep(PATIENCE_S)


def test_values_of_a_killed_client_are_stored_by_the_next_of_its_rank(tmp_path):
    (tmp_path / "run").mkdir()
    child = start(_put_and_wait, tmp_path)
    assert child.wait_for_word() == b"kept"
    child.kill()
    child.join()
    with collecting(tmp_path / "run/all.h5") as collector:
        with collector.connect(World(rank=1, size=2)) as other:
            other.put("refused", 2)
        client = _spilling(tmp_path)
        client.append("x", [2.0])
        with pytest.raises(SchemaError, match="'refused' was put before and was another one"):
            client.flush()
        client.close()
    assert os.listdir(tmp_path / "spill") == []
    with h5py.File(tmp_path / "run/all.h5") as file:
        assert file["config"][:].tolist() == [1, 2]
        assert file["x"][:].tolist() == [1.0, 2.0]
        assert (file["x"].attrs["unit"], file["x"].attrs["n"]) == ("m", 7)
        assert file["refused"][()] == 2
