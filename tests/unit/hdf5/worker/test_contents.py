"""Datasets that are created, values that are put once, attributes: what a rank's file holds."""

import os

import h5py
import numpy as np
import pytest

from shardkeep.errors import LockError, PlanError, SchemaError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.hdf5.storage.attributes import read_attributes, same_value
from shardkeep.world import World
from tests.unit.hdf5.dtypes import DTYPES, values_of

WORLD = World(rank=0, size=1)


def _open(run, **options):
    return WorkerFile(run, WORLD, durable=False, **options)


def _segment(run, number=-1):
    folder = run / "rank-00000"
    return h5py.File(folder / sorted(name for name in os.listdir(folder) if name.endswith(".h5"))[number])


# -- declare ----------------------------------------------------------------------------------------


def test_a_declared_dataset_is_there_without_rows(run):
    with _open(run) as out:
        out.declare("a/x", "f4", (3,))
        assert out.committed_rows == {"a/x": 0}
        out.commit(step=1)
    with _segment(run) as file:
        assert (file["a/x"].shape, file["a/x"].dtype) == ((0, 3), np.dtype("f4"))
    with _open(run) as out:
        with pytest.raises(SchemaError, match="float64"):
            out.append("a/x", np.zeros((1, 3)))
        out.append("a/x", [[1, 2, 3]])
        out.commit(step=2)


def test_several_datasets_are_declared_alike(run):
    with _open(run) as out:
        out.declare(["a/x", "y"], "f4", (3,), chunk_rows=5, compression="gzip")
        out.commit(step=1)
    with _segment(run) as file:
        assert [(file[name].dtype, file[name].chunks) for name in ("a/x", "y")] == [("f4", (5, 3))] * 2


def test_the_older_name_of_declare_warns(run):
    with _open(run) as out:
        with pytest.warns(DeprecationWarning, match="use WorkerFile.declare"):
            out.create("x", "f4", (2,), chunk_rows=5)
        assert out.committed_rows == {"x": 0}
        out.declare("x", "f4", (2,), chunk_rows=5)


def test_declaring_again_changes_nothing(run):
    for step in range(3):
        with _open(run) as out:
            for _ in range(2):
                out.declare("x", "f4", (2,), compression="gzip", chunk_rows=10)
                out.declare("t", str)
                out.append("x", np.full((7, 2), step, "f4"))
            out.append("t", ["ä"])
            out.commit(step=step)
    merge(run, run / "all.h5")
    with h5py.File(run / "all.h5") as file:
        assert file["x"][:, 0].tolist() == [0.0] * 14 + [1.0] * 14 + [2.0] * 14
        assert file["t"].asstr()[:].tolist() == ["ä"] * 3


@pytest.mark.parametrize(
    ("dtype", "row_shape"), [("f8", (2,)), (">f4", (2,)), ("f4", ()), (str, (2,)), ("f4", (2, 1))]
)
def test_another_declaration_is_refused(run, dtype, row_shape):
    with _open(run) as out:
        out.append("x", np.zeros((1, 2), "f4"))
        with pytest.raises(SchemaError, match=r"float32 rows of shape \(2,\)"):
            out.declare("x", dtype, row_shape)
        out.commit(step=1)
    with _open(run) as out, pytest.raises(SchemaError, match=r"float32 rows of shape \(2,\)"):
        out.declare("x", dtype, row_shape)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"dtype": object}, SchemaError, "cannot keep"),
        ({"dtype": "M8[s]"}, SchemaError, "view"),
        ({"dtype": "S0"}, SchemaError, "cannot keep"),
        ({"dtype": "nonsense"}, SchemaError, "not a dtype"),
        ({"dtype": ("f4", (3,))}, SchemaError, "row_shape"),
        ({"dtype": h5py.ref_dtype}, SchemaError, "cannot keep"),
        ({"dtype": h5py.vlen_dtype(h5py.vlen_dtype("i4"))}, SchemaError, "cannot keep"),
        ({"dtype": h5py.vlen_dtype("i4"), "row_shape": (2,)}, SchemaError, "variable length"),
        ({"dtype": "f4", "row_shape": (1 << 31,)}, SchemaError, "4 GiB"),
        ({"dtype": "f4", "row_shape": (-1,)}, SchemaError, "negative"),
        ({"dtype": "f4", "row_shape": 3}, SchemaError, "tuple"),
        ({"dtype": "f4", "row_shape": (1.5,)}, SchemaError, "whole numbers"),
        ({"dtype": "f4", "chunk_rows": 0}, PlanError, "chunk_rows"),
        ({"dtype": str, "compression": "gzip"}, SchemaError, "variable length"),
    ],
)
def test_an_invalid_declaration_is_refused(run, options, error, said):
    with _open(run) as out:
        with pytest.raises(error, match=said) as caught:
            out.declare("x", **options)
        assert "\n" not in str(caught.value)
        assert out.committed_rows == {}


def test_a_declaration_outlives_a_rollback(run):
    with _open(run) as out:
        out.declare("x", "f4", (2,), compression="gzip", chunk_rows=5)
        out.append("x", np.zeros((3, 2), "f4"))
        out.commit(step=1)
        out.rollback(step=-1)
        assert out.committed_rows == {"x": 0}
        out.append("x", [[1, 2]])
        out.commit(step=1)
    with _segment(run) as file:
        assert (file["x"].compression, file["x"].chunks, file["x"].shape) == ("gzip", (5, 2), (1, 2))


def test_a_row_that_is_appended_during_a_declaration_stays(run):
    with _open(run) as out:
        out.append("x", [1])
        out.commit(step=1)
        parts = out._writers["x"].parts
        out.declare("x", "i8", compression="gzip")
        parts.append(np.array([2]).tobytes())  # another thread, that had looked before
        out.commit(step=2)
        assert out.committed_rows == {"x": 2}


def test_the_compression_of_the_file_does_not_reach_text(run):
    with _open(run, compression="gzip") as out:
        out.declare("t", str, chunk_rows=2)
        out.append("t", ["a", "b", "c"])
        out.commit(step=1)
    with _segment(run) as file:
        assert (file["t"].compression, file["t"].chunks) == (None, (2,))


def test_rows_of_any_length_are_kept(run):
    rows = [[1, 2, 3], [], range(5), np.array([7], "i2")]
    with _open(run) as out:
        out.declare("x", h5py.vlen_dtype("i4"))
        out.append("x", rows[:3])
        out.append("x", rows[3:])
        for wrong in ([[1.5]], [3], 3, [[[1]]], [["a"]], [[1 << 40]]):
            with pytest.raises(SchemaError):
                out.append("x", wrong)
        out.commit(step=1)
        out.append("x", np.arange(6).reshape(2, 3).astype("i4"))
        out.commit(step=2)
    merge(run, run / "all.h5")
    with h5py.File(run / "all.h5") as file:
        assert h5py.check_vlen_dtype(file["x"].dtype) == np.dtype("i4")
        back = [row.tolist() for row in file["x"][:]]
    assert back == [[1, 2, 3], [], [0, 1, 2, 3, 4], [7], [0, 1, 2], [3, 4, 5]]


def test_text_within_a_compound_is_kept(run):
    dtype = np.dtype([("id", "i4"), ("name", h5py.string_dtype())])
    rows = np.array([(1, "ä"), (2, "")], dtype)
    with _open(run) as out:
        out.append("x", rows)
        rows["name"][0] = "later"
        for wrong, said in (("a\0b", "NUL"), (3, "hold int")):
            with pytest.raises(SchemaError, match=said):
                out.append("x", np.array([(1, wrong)], dtype))
        out.commit(step=1)
    merge(run, run / "all.h5")
    with h5py.File(run / "all.h5") as file:
        assert [(int(i), name.decode()) for i, name in file["x"][:]] == [(1, "ä"), (2, "")]


def test_large_rows_and_empty_rows_are_kept(run):
    large = np.random.default_rng(0).integers(0, 255, (3, 10_000_000), "u1")
    with _open(run) as out:
        for row in large:
            out.append("large", row[None])
        out.append("none", np.zeros((5, 0), "f4"))
        out.append("none", np.zeros((1, 0), "f4"))
        out.append("large", large[:0])
        out.append("loss", np.zeros(0))
        out.commit(step=1)
        assert out.committed_rows == {"large": 3, "none": 6, "loss": 0}
    with _segment(run) as file:
        assert file["large"].chunks == (1, 10_000_000)
        assert (file["large"][:] == large).all()
        assert file["none"].shape == (6, 0)


def test_rows_of_any_length_may_be_equally_long(run):
    with _open(run) as out:
        out.declare("x", h5py.vlen_dtype("i4"))
        out.append("x", [[1, 2], [3, 4]])
        out.commit(step=1)
    for mode in ("copy", "virtual"):
        merge(run, run / f"{mode}.h5", mode=mode)
        with h5py.File(run / f"{mode}.h5") as file:
            assert [row.tolist() for row in file["x"][:]] == [[1, 2], [3, 4]]


# -- put --------------------------------------------------------------------------------------------

VALUES = [
    3,
    2.5,
    True,
    1 + 2j,
    "täxt",
    "",
    b"bytes",
    np.float16(0.5),
    np.array(7, ">i4"),
    np.zeros(0),
    np.arange(12.0).reshape(3, 4),
    np.array([1, 2], ">f4"),
    ["a", "ö"],
    np.array([(1, 2.5)], [("a", "i1"), ("b", "f8")]),
    np.array((1, 2.5), np.dtype([("a", "i1"), ("b", "f8")], align=True)),
    np.array(1, h5py.enum_dtype({"A": 0, "B": 1})),
    np.float64("nan"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_written_once(run, value):
    with _open(run) as out:
        out.put("a/v", value)
        out.put("a/v", value)
        out.commit(step=1)
        out.put("a/v", value)
        out.append("x", [1])
        out.commit(step=2)
    with _open(run) as out:
        out.put("a/v", value)
        with pytest.raises(SchemaError, match="differs"):
            out.put("a/v", 12345)
        out.commit(step=3)
    with _segment(run, 0) as file:
        dataset = file["a/v"]
        assert dataset.attrs["_put"]
        assert dataset.shape == np.shape(value)
        if isinstance(value, str):
            assert dataset.asstr()[()] == value
        elif isinstance(value, list):
            assert dataset.asstr()[:].tolist() == value
        else:
            array = np.asarray(value)
            assert same_value((dataset[()], dataset.dtype), (array, array.dtype))
    for number in (1, 2):
        with _segment(run, number) as file:
            assert "a/v" not in file


def test_a_value_is_copied_and_rolled_back(run):
    with _open(run) as out:
        value = np.arange(3)
        out.put("v", value)
        value += 1
        out.commit(step=1)
        out.put("w", 1)
        out.rollback(step=1)
        out.put("w", 2)
        out.commit(step=2)
        out.rollback(step=1)
        out.put("w", 3)
        out.commit(step=2)
        out.rollback(step=0)
        out.put("v", 5.5)
        out.commit(step=1)
        with pytest.raises(SchemaError, match="differs"):
            out.put("v", np.arange(3))
    with _segment(run) as file:
        assert sorted(file) == ["_commit", "v"]
        assert file["v"][()] == 5.5


def test_a_value_and_a_dataset_do_not_share_a_name(run):
    with _open(run) as out:
        out.append("x/rows", [1])
        out.put("v", 1)
        for _ in range(2):
            for action in (
                lambda: out.put("x/rows", 1),
                lambda: out.put("x", 1),
                lambda: out.put("v/w", 1),
                lambda: out.put("_commit", 1),
                lambda: out.append("v", [1]),
                lambda: out.append("v/w", [1]),
                lambda: out.declare("v", "f4"),
            ):
                with pytest.raises(SchemaError):
                    action()
            if out.committed_step is None:
                out.commit(step=1)
        assert out.committed_rows == {"x/rows": 1}


@pytest.mark.parametrize("value", [None, object(), [1, "a"], np.datetime64("now"), h5py.Empty("f4")])
def test_values_that_cannot_be_kept_are_refused(run, value):
    with _open(run) as out, pytest.raises(SchemaError) as caught:
        out.put("v", value)
    assert "\n" not in str(caught.value)


def test_a_value_that_was_never_committed_is_warned_about(run):
    out = _open(run)
    out.put("v", 1)
    with pytest.warns(RuntimeWarning, match="value 'v'"):
        out.close()


# -- attributes ---------------------------------------------------------------------------------------


def test_attributes_come_and_go_with_commits(run):
    with _open(run) as out:
        out.append("g/x", [1.5])
        out.set_attribute("unit", "nats", on="g/x")
        out.set_attribute("seed", 1)
        out.set_attribute("note", "of a group", on="g")
        out.set_attribute("note", "of a group without datasets", on="other/one")
        out.commit(step=1)
        out.set_attribute("seed", 2)
        out.set_attribute("unit", "bits", on="g/x")
        out.commit(step=2)
        out.set_attribute("seed", 3)
        assert out.attributes() == {"seed": 3}
    with _segment(run) as file:
        assert dict(file.attrs) == {"seed": 2}
        assert dict(file["g/x"].attrs) == {"unit": "bits"}
        assert dict(file["g"].attrs) == {"note": "of a group"}
        assert dict(file["other/one"].attrs) == {"note": "of a group without datasets"}
    with _open(run) as out:
        assert out.attributes() == {"seed": 2}
        out.rollback(step=1)
        assert out.attributes() == {"seed": 1}
        assert out.attributes("g/x") == {"unit": "nats"}
        assert out.attributes("other/one") == {"note": "of a group without datasets"}
        out.rollback(step=-1)
        assert out.attributes() == out.attributes("g") == {}


def test_an_attribute_may_come_before_its_dataset(run):
    with _open(run) as out:
        out.set_attribute("unit", "m", on="a/x")
        out.append("a/x", [1])
        out.commit(step=1)
    with _segment(run) as file:
        assert dict(file["a/x"].attrs) == {"unit": "m"}


def test_a_group_that_is_committed_stays_one(run):
    for _ in range(2):
        with _open(run) as out:
            out.set_attribute("unit", "m", on="a/b")
            if out.committed_step is None:
                out.commit(step=1)
            for name in ("a/b", "a"):
                with pytest.raises(SchemaError, match="group"):
                    out.append(name, [1])
            out.append("a/b/c", [1])
            with pytest.raises(SchemaError, match="is not a group"):
                out.set_attribute("unit", "m", on="a/b/c/d")
            out.commit(step=2 + out.committed_step)


def test_attributes_of_a_value_are_written_with_it(run):
    with _open(run) as out:
        out.put("v", 1)
        out.set_attribute("unit", "m", on="v")
        out.commit(step=1)
        out.set_attribute("unit", "m", on="v")
        for name, value in (("unit", "km"), ("other", 1)):
            with pytest.raises(SchemaError, match="committed"):
                out.set_attribute(name, value, on="v")
        out.commit(step=2)
    with _open(run) as out:
        assert out.attributes("v") == {"unit": "m"}
        out.set_attribute("unit", "m", on="v")
    with _segment(run, 0) as file:
        assert dict(file["v"].attrs) == {"_put": True, "unit": "m"}
    with _segment(run, 1) as file:
        assert list(file) == ["_commit"]


@pytest.mark.parametrize("on", ["", "a//b", "_commit", "..", 3, None])
def test_names_that_cannot_have_attributes_are_refused(run, on):
    with _open(run) as out, pytest.raises(SchemaError):
        out.set_attribute("a", 1, on=on)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_and_attributes_are_kept_by_both_modes_of_merge(run, dtype):
    scalar, array = values_of(dtype, (2,))[1:].reshape(()), values_of(dtype, (2, 3))
    for rank in range(2):
        with WorkerFile(run, World(rank=rank, size=2), durable=False) as out:
            for step in (1, 2):
                out.append("x", [rank, step])
                out.put("a/scalar", scalar)
                out.put("array", array)
                out.set_attribute("kept", array)
                out.set_attribute("kept", scalar, on="x")
                out.set_attribute("kept", array, on="array")
                out.set_attribute("kept", step, on="a")
                out.set_attribute("kept", "text", on="only/group")
                out.commit(step=step)
    for mode in ("copy", "virtual"):
        merge(run, run / f"{mode}.h5", mode=mode)
        with h5py.File(run / f"{mode}.h5") as file:
            for name, value in (("a/scalar", scalar), ("array", array)):
                assert same_value((file[name][()], file[name].dtype), (value, value.dtype))
            for name, value in (("/", array), ("x", scalar), ("array", array)):
                back = read_attributes(file[name])[0].values["kept"]
                assert same_value(back, (value, value.dtype))
            assert file["a"].attrs["kept"] == 2
            assert file["only/group"].attrs["kept"] == "text"


# -- all of it ----------------------------------------------------------------------------------------


def test_calls_after_close_are_refused(run):
    out = _open(run)
    out.close()
    for action in (
        lambda: out.declare("x", "f4"),
        lambda: out.put("v", 1),
        lambda: out.set_attribute("a", 1),
        lambda: out.attributes(),
    ):
        with pytest.raises(LockError, match="closed"):
            action()


@pytest.mark.parametrize("dtype", ["f2", "f4", "c8"])
def test_a_number_that_would_become_infinite_is_refused(run, dtype):
    with _open(run) as out:
        out.append("x", np.zeros(1, dtype))
        for rows in ([1e300], [1e300, 1.0], [-(10**39) * 1.0]):
            with pytest.raises(SchemaError, match="'x' has"):
                out.append("x", rows)
        out.append("x", [float("inf"), 0.1])
        out.append("x", [float("nan")])
        out.commit(step=1)
        assert out.committed_rows == {"x": 4}


def test_names_that_are_not_unicode_are_refused_before_the_commit(run):
    with _open(run) as out:
        out.append("x", [1])
        for call in (
            lambda: out.append("\udc80", [1]),
            lambda: out.declare("a/\udc80", "f4"),
            lambda: out.put("\udc80", 1),
            lambda: out.set_attribute("\udc80", 1),
            lambda: out.set_attribute("a", 1, on="\udc80"),
        ):
            with pytest.raises(SchemaError, match="Unicode"):
                call()
        out.commit(step=1)
        assert out.committed_rows == {"x": 1}


def test_a_row_of_another_thread_survives_declare(run):
    with _open(run) as out:
        out.declare("x", "f8", chunk_rows=1)
        before = out._contents.writers["x"]  # what a thread has in its hands, in the middle of append
        out.declare("x", "f8", chunk_rows=2)
        before.parts.append(np.ones(1).tobytes())
        out._settle(before)
        out.commit(step=1)
        assert out.committed_rows == {"x": 1}
