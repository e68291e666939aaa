"""Every type through plain files and both ways of merging, byte order included.

Covers `shardkeep.hdf5.merge.schema`.
"""

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import WorkerFile, merge, verify
from shardkeep.hdf5.storage.dtypes import same_file_type
from shardkeep.world import World
from tests.unit.hdf5.dtypes import DTYPES, check_rows, values_of

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": True, "maxshape": (None, 2)},
    "gzip": {"chunks": (3, 2), "maxshape": (None, 2), "compression": "gzip", "shuffle": True},
}


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_every_type_are_kept(tmp_path, dtype, layout, mode):
    dtype = np.dtype(dtype)
    rows = values_of(dtype, (16, 2))
    files = []
    for i, part in enumerate((rows[:9], rows[9:9], rows[9:])):
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            file.create_dataset("g/x", data=part, dtype=dtype, **LAYOUTS[layout])
            file["g/x"].attrs.create("value", rows[0, 0], dtype=dtype)
            file.create_dataset("one", data=rows[0, 0], dtype=dtype)
    report = merge(files, tmp_path / "all.h5", mode=mode)
    assert (report.rows, report.dropped_attributes) == ({"g/x": 16}, {})
    check_rows(tmp_path / "all.h5", "g/x", rows)
    kinds = []
    for path in (files[0], tmp_path / "all.h5"):
        with h5py.File(path) as file:
            kinds.append([file["g/x"].id.get_type().encode(), file["one"].id.get_type().encode()])
            assert file["one"][()].tobytes() == rows[0, 0].tobytes() or file["one"][()] == rows[0, 0]
    assert all(map(same_file_type, *kinds))
    assert verify(tmp_path / "all.h5").ok


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_types_with_another_form_in_the_file_are_kept(tmp_path, mode):
    """Padding of strings, and space between fields."""
    padded = h5py.h5t.C_S1.copy()
    padded.set_size(6)
    padded.set_strpad(h5py.h5t.STR_SPACEPAD)
    spaced = h5py.h5t.create(h5py.h5t.COMPOUND, 24)
    spaced.insert(b"a", 4, h5py.h5t.STD_I16BE)
    spaced.insert(b"b", 12, h5py.h5t.IEEE_F64LE)
    files, expected = [], {}
    for i in range(2):
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            for name, kind, values in [
                ("padded", padded, np.array([b"ab", b"abcdef", b""], "S6")),
                ("spaced", spaced, np.array([(i, 0.5), (-2, 1.5), (3, i)], [("a", ">i2"), ("b", "<f8")])),
            ]:
                space = h5py.h5s.create_simple((3,))
                dataset = h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space))
                dataset[...] = values
                expected.setdefault(name, []).extend(dataset[:].tolist())
    merge(files, tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file, h5py.File(files[0]) as source:
        for name, values in expected.items():
            assert file[name][:].tolist() == values, name
            assert file[name].id.get_type().equal(source[name].id.get_type()), name
    assert verify(tmp_path / "all.h5").ok


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_rows_of_variable_length_are_kept(tmp_path, mode):
    numbers, text = h5py.vlen_dtype(">f4"), h5py.string_dtype("ascii")
    both = np.dtype([("n", "i4"), ("t", h5py.string_dtype())])
    files = []
    for i in range(2):
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            file.create_dataset("v", (2, 2), numbers, chunks=(1, 2), compression="gzip")
            file["v"][0, 0], file["v"][1, 1] = np.array([1, 2, i], ">f4"), np.array([0.5], ">f4")
            file.create_dataset("t", data=["plain", ""], dtype=text)
            file.create_dataset("b", data=np.array([(i, "ä"), (2, "")], both), dtype=both)
    merge(files, tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file:
        found = [value.view(">f4").tolist() for value in file["v"][:].ravel()]
        assert h5py.check_string_dtype(file["t"].dtype).encoding == "ascii"
        assert file["t"].asstr()[:].tolist() == ["plain", ""] * 2
        assert file["b"][:].tolist() == [(0, "ä".encode()), (2, b""), (1, "ä".encode()), (2, b"")]
    assert found == [[1, 2, 0], [], [], [0.5], [1, 2, 1], [], [], [0.5]]
    assert verify(tmp_path / "all.h5").ok


def test_opaque_values_with_a_tag_are_refused(tmp_path):
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 5)
    kind.set_tag(b"five bytes")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((3,)))
    with pytest.raises(SchemaError, match=r"'x' of .* has opaque values with a tag"):
        merge([tmp_path / "a.h5"], tmp_path / "all.h5")


def test_a_file_with_a_user_block_is_merged(tmp_path):
    files = []
    for i in range(2):
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w", userblock_size=512) as file:
            file.create_dataset("x", data=np.arange(20) + i, chunks=(5,), compression="gzip")
            file["y"] = np.arange(20) + i
    with pytest.warns(RuntimeWarning, match="user block"):
        report = merge(files, tmp_path / "all.h5")
    assert report.ways["x"].startswith("chunks:")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == file["y"][:].tolist() == [*range(20), *range(1, 21)]


# -- what ranks wrote once ---------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_values_that_were_put_are_kept_or_become_rows(tmp_path, mode):
    for rank in (0, 2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=3)) as out:
            out.put("labels", ["cat", "dög"])
            out.put("seed", rank + 7)
            out.put("g/means", np.full((2, 2), rank, ">f4"))
            if rank:
                out.put("only", 2.5)
            out.set_attribute("title", "run")
            out.set_attribute("host", f"node{rank}")
            out.append("x", [rank])
            out.commit(step=1)
            out.append("x", [rank])
            out.commit(step=2)
    report = merge(tmp_path / "run", tmp_path / "all.h5", mode=mode, incomplete="allow")
    assert report.rows == {"x": 4}
    assert report.dropped_attributes["/"] == ("host",)
    assert report.ways["seed"].startswith("ranks:") and report.ways["labels"].startswith("constant:")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["labels"].asstr()[:].tolist() == ["cat", "dög"]
        assert file["seed"][:].tolist() == [7, 9]
        assert file["seed"].attrs["_ranks"].tolist() == [0, 2]
        assert (file["g/means"].shape, file["g/means"].dtype) == ((2, 2, 2), np.dtype(">f4"))
        assert file["only"][()] == 2.5
        assert dict(file.attrs) == {"title": "run"}
    if mode == "copy":
        merge([tmp_path / "all.h5"], tmp_path / "again.h5")
        with h5py.File(tmp_path / "again.h5") as file:
            assert file["labels"].asstr()[:].tolist() == ["cat", "dög"]


def test_values_of_different_shapes_are_refused(tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.put("labels", np.arange(rank + 1))
            out.commit(step=1)
    with pytest.raises(SchemaError, match=r"value 'labels' differs .* its shapes differ") as caught:
        merge(tmp_path / "run", tmp_path / "all.h5")
    assert [row["ranks"] for row in caught.value.table] == [[0], [1]]


# -- the plan -----------------------------------------------------------------------------------------


def test_the_plan_prints_as_a_table(tmp_path):
    for rank in range(2):
        with WorkerFile(
            tmp_path / "run",
            World(rank=rank, size=3),
        ) as out:
            out.declare("a rather long name of a dataset/x", "f4", (128,), compression="gzip")
            out.append("a rather long name of a dataset/x", np.zeros((2500, 128), "f4"))
            out.append("loss", [0.5])
            out.put("seed", rank)
            out.commit(step=1)
    plan = merge(tmp_path / "run", tmp_path / "all.h5", dry_run=True)
    assert not (tmp_path / "all.h5").exists()
    text = str(plan)
    path = str(tmp_path)
    whole = " ".join(text.split())
    assert all(len(line) <= 80 or path in line for line in text.splitlines()), text
    assert "2 files into" in text and "5,000 rows" in text and "rank 2 of 3 has no commit" in whole
    assert "ends inside a chunk" in whole and "one row for each of 2 ranks" in whole
    values = plan.to_dict()
    assert [one["way"] for one in values["datasets"]] == ["chunks and rows", "rows", "ranks"]
    assert values["datasets"][0]["bytes"] > 0


def test_a_merged_file_with_values_of_ranks_can_be_merged_again(tmp_path):
    for name in ("a", "b"):
        for rank in range(2):
            with WorkerFile(tmp_path / name, World(rank=rank, size=2)) as out:
                out.put("seed", rank)
                out.put("classes", 10)
                out.commit(step=1)
        merge(tmp_path / name, tmp_path / f"{name}.h5")
    for sources, rows, ranks in (("a",), [0, 1], [[0, 1]]), (("a", "b"), [0, 1, 0, 1], []):
        merge([tmp_path / f"{name}.h5" for name in sources], tmp_path / "all.h5", exists="replace")
        with h5py.File(tmp_path / "all.h5") as file:
            assert file["seed"][:].tolist() == rows
            # Two files have four rows, and no such numbers for them.
            assert [value.tolist() for value in file["seed"].attrs.values()] == ranks
            assert file["classes"][()] == 10
        assert verify(tmp_path / "all.h5").ok
