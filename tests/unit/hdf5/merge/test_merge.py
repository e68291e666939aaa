import os

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    FormatError,
    PlanError,
    SchemaError,
    ShardkeepError,
)
from shardkeep.hdf5 import WorkerFile, merge, plan_merge, receipts, verify
from shardkeep.world import World
from tests.descriptors import few_descriptors
from tests.unit.hdf5.merge.plain_files import read, write_file

GZIP = {"compression": "gzip", "shuffle": True}


# -- what is in the result --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "copy", "virtual"])
def test_plain_files_are_merged_in_the_order_of_the_list(tmp_path, three, mode):
    report = merge([three[2], three[0], three[1]], tmp_path / "all.h5", mode=mode)
    assert read(tmp_path / "all.h5").tolist() == [*range(20, 30), *range(20)]
    assert report.rows == {"x": 30}
    assert report.sources == (str(three[2]), str(three[0]), str(three[1]))
    assert report.bytes == os.path.getsize(tmp_path / "all.h5")
    assert report.to_dict()["rows"] == {"x": 30}


def test_a_list_of_one_run_folder_is_that_run(tmp_path):
    for run in ("run-a", "run-b"):
        with WorkerFile(tmp_path / run, World(rank=0, size=1)) as out:
            out.append("x", [1])
            out.commit(step=1)
    for number, sources in enumerate(([tmp_path / "run-a"], str(tmp_path / "run-[a]"))):
        merge(sources, tmp_path / f"{number}.h5")
        with h5py.File(tmp_path / f"{number}.h5") as file:
            assert file["_provenance"].attrs["root"] == str(tmp_path / "run-a")
    with pytest.raises(FormatError, match=r"run-a' is a folder.*pass the folder of a run by itself"):
        merge(str(tmp_path / "run-*"), tmp_path / "all.h5")


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_the_result_has_provenance_and_receipts(tmp_path, mode):
    run = tmp_path / "run"
    for rank in range(2):
        with WorkerFile(run, World(rank=rank, size=2)) as out:
            for step in (10, 20):
                out.append("a/b", np.full((rank + 1, 3), step))
                if rank:
                    out.append("only", [step])
                out.commit(step=step, receipt={"id": f"L{rank}", "step": step})
    merge(run, tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file:
        table = file["_provenance"]
        assert table.attrs["root"] == str(run)
        rows = [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in table[:].tolist()]
        assert table.dtype.names == ("rank", "step", "dataset", "file", "first_row", "rows", "source_row")
        assert file["a/b"][:, 0].tolist() == [10, 20, 10, 10, 20, 20]
        assert file["only"][:].tolist() == [10, 20]
    files = ["00000000-step-10.h5", "00000001-step-20.h5"]
    assert rows == [
        (0, 10, "a/b", f"rank-00000/{files[0]}", 0, 1, 0),
        (0, 20, "a/b", f"rank-00000/{files[1]}", 1, 1, 0),
        (1, 10, "a/b", f"rank-00001/{files[0]}", 2, 2, 0),
        (1, 20, "a/b", f"rank-00001/{files[1]}", 4, 2, 0),
        (1, 10, "only", f"rank-00001/{files[0]}", 0, 1, 0),
        (1, 20, "only", f"rank-00001/{files[1]}", 1, 1, 0),
    ]
    expected = [{"id": "L0", "step": 20}, {"id": "L1", "step": 20}]
    assert receipts(tmp_path / "all.h5") == receipts(run) == expected
    merge([tmp_path / "all.h5"], tmp_path / "again.h5") if mode == "copy" else None
    if mode == "copy":
        assert receipts(tmp_path / "again.h5") == expected


def test_virtual_sources_have_relative_paths(tmp_path, three):
    merge(three, tmp_path / "all.h5", mode="virtual")
    (tmp_path / "moved").mkdir()
    for path in [*three, tmp_path / "all.h5"]:
        os.rename(path, tmp_path / "moved" / path.name)
    assert read(tmp_path / "moved" / "all.h5").tolist() == list(range(30))


def test_a_percent_sign_in_names_of_virtual_sources_is_kept(tmp_path):
    files = [write_file(tmp_path / f"100%b {i}.h5", **{"a%d": [i, i + 0.5]}) for i in range(2)]
    merge(files, tmp_path / "all.h5", mode="virtual")
    assert read(tmp_path / "all.h5", "a%d").tolist() == [0, 0.5, 1, 1.5]


def test_datasets_without_rows_and_scalars_are_kept(tmp_path):
    options = {"a": np.empty((0, 3)), "n": np.int32(7), "t": "text", "x": [1.0]}
    files = [write_file(tmp_path / f"{i}.h5", **options, nothing=h5py.Empty("f4")) for i in range(2)]
    for mode in ("copy", "virtual"):
        report = merge(files, tmp_path / f"{mode}.h5", mode=mode)
        assert report.rows == {"a": 0, "x": 2}
        with h5py.File(report.output) as file:
            assert file["a"].shape == (0, 3)
            assert (file["n"][()], file["n"].dtype) == (7, "i4")
            assert file["t"].asstr()[()] == "text"
            assert file["nothing"].shape is None
    write_file(tmp_path / "2.h5", **{**options, "n": np.int32(8)}, nothing=h5py.Empty("f4"))
    with pytest.raises(SchemaError, match="scalar 'n' differs"):
        merge([*files, tmp_path / "2.h5"], tmp_path / "c.h5")


def test_attributes_that_are_equal_are_kept(tmp_path, three):
    text = h5py.string_dtype("utf-8")
    for i, path in enumerate(three):
        with h5py.File(path, "a") as file:
            attributes = file["x"].attrs
            attributes["unit"] = "mm"
            attributes["nan"] = np.nan
            attributes["names"] = np.array(["a", "b"], dtype=text)
            attributes["number"] = i
            attributes["empty"] = h5py.Empty("f4")
            attributes["where"] = file["x"].ref
    with pytest.warns(RuntimeWarning, match="x@where"):
        report = merge(three, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        attributes = dict(file["x"].attrs)
    assert sorted(attributes) == ["empty", "names", "nan", "unit"]
    assert attributes["names"].tolist() == ["a", "b"]
    assert report.dropped_attributes == {"x": ("number", "where")}


def test_dimension_scales_are_named_as_dropped(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((3, 2))
        file["time"] = np.arange(3)
        file["time"].make_scale("time")
        file["x"].dims[0].attach_scale(file["time"])
        file["x"].attrs["unit"] = "s"
    with pytest.warns(RuntimeWarning, match="x@DIMENSION_LIST: ties a dataset to its dimension scale"):
        report = merge([tmp_path / "a.h5"], tmp_path / "b.h5")
    assert report.dropped_attributes == {
        "x": ("DIMENSION_LIST",),
        "time": ("CLASS", "NAME", "REFERENCE_LIST"),
    }
    with h5py.File(tmp_path / "b.h5") as file:
        assert dict(file["x"].attrs) == {"unit": "s"}


VLEN = h5py.vlen_dtype("i4")


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_values_of_variable_length_are_kept(tmp_path, mode):
    mixed = np.dtype([("n", "i4"), ("s", h5py.string_dtype())])
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file.create_dataset("v", (2,), VLEN)
            file["v"][0], file["v"][1] = [1, 2, i], []
            file.create_dataset("s", data=["ä", "b" * i], dtype=h5py.string_dtype())
            file.create_dataset("m", data=np.array([(i, "x"), (2, "yy")], mixed), dtype=mixed)
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5", mode=mode)
    with h5py.File(tmp_path / "all.h5") as file:
        assert [row.tolist() for row in file["v"]] == [[1, 2, 0], [], [1, 2, 1], []]
        assert file["s"].asstr()[:].tolist() == ["ä", "", "ä", "b"]
        assert file["m"][:].tolist() == [(0, b"x"), (2, b"yy"), (1, b"x"), (2, b"yy")]


@pytest.mark.parametrize("text", [h5py.string_dtype("ascii", 4), h5py.string_dtype("utf-8", 4), "S4"])
def test_the_kind_of_a_string_is_kept(tmp_path, text):
    files = [
        write_file(tmp_path / f"{i}.h5", x=(np.array([b"ab", b"c"], text), {"dtype": text})) for i in range(2)
    ]
    merge(files, tmp_path / "all.h5")
    kinds = []
    for path in (files[0], tmp_path / "all.h5"):
        with h5py.File(path) as file:
            kinds.append(file["x"].id.get_type().encode())
    assert kinds[0] == kinds[1]


# -- chunks as they are -----------------------------------------------------------------------------


def _chunk_bytes(path, name="x"):
    with h5py.File(path) as file:
        dataset = file[name]
        offsets = []
        dataset.id.chunk_iter(lambda info: offsets.append(info.chunk_offset))
        return {offset: dataset.id.read_direct_chunk(offset) for offset in offsets}


def test_aligned_compressed_chunks_are_copied_raw(tmp_path):
    data = np.random.default_rng(0).integers(0, 9, (100, 6))
    layout = {**GZIP, "chunks": (10, 4)}
    files = [
        write_file(tmp_path / f"{i}.h5", x=(data[a:b], layout))
        for i, (a, b) in enumerate([(0, 40), (40, 60), (60, 95)])
    ]
    report = merge(files, tmp_path / "all.h5")
    assert report.ways["x"].startswith("chunks:")
    assert (read(tmp_path / "all.h5") == data[:95]).all()
    result = _chunk_bytes(tmp_path / "all.h5")
    for path, start in zip(files, (0, 40, 60), strict=True):
        for offset, chunk in _chunk_bytes(path).items():
            assert result[start + offset[0], offset[1]] == chunk
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"].chunks, file["x"].compression, file["x"].shuffle) == ((10, 4), "gzip", True)
        assert file["x"].maxshape == (None, 6)


@settings(max_examples=25)
@given(st.lists(st.integers(0, 25), min_size=1, max_size=6), st.sampled_from([None, "gzip", "lzf"]))
def test_sources_of_any_lengths_are_merged(tmp_path_factory, lengths, compression):
    folder = tmp_path_factory.mktemp("mix")
    files, start = [], 0
    for i, length in enumerate(lengths):
        rows = np.arange(start, start + length)
        chunks = {"chunks": (5,), "maxshape": (None,), "compression": compression}
        files.append(write_file(folder / f"{i}.h5", x=(rows, chunks)))
        start += length
    merge(files, folder / "all.h5")
    assert read(folder / "all.h5").tolist() == list(range(start))


_ODD = {
    "starts inside a chunk": [{"chunks": (10,), "maxshape": (None,)}] * 2,
    "has chunks of": [{"chunks": (10,)}, {"chunks": (5,)}],
    "has other filters": [{"chunks": (10,)}, {"chunks": (10,), "shuffle": False}],
    "has another fill value": [{"chunks": (10,)}, {"chunks": (10,), "fillvalue": 3}],
}


@pytest.mark.parametrize("reason", _ODD)
def test_chunks_that_do_not_fit_are_compressed_again(tmp_path, reason):
    rows = 7 if "inside" in reason else 20
    files = []
    for i, options in enumerate(_ODD[reason]):
        files.append(write_file(tmp_path / f"{i}.h5", x=(np.arange(rows) + i * rows, {**GZIP, **options})))
    plan = plan_merge(files, tmp_path / "all.h5")
    assert reason in plan.datasets[0].reason or "ends inside" in plan.datasets[0].reason
    merge(files, tmp_path / "all.h5")
    assert read(tmp_path / "all.h5").tolist() == list(range(2 * rows))


def test_the_filter_mask_of_a_chunk_is_kept(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            dataset = file.create_dataset("x", (10,), "i8", chunks=(10,), compression="gzip")
            dataset.id.write_direct_chunk((0,), np.arange(10).tobytes(), 1)  # gzip left out
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    assert read(tmp_path / "all.h5").tolist() == [*range(10), *range(10)]
    assert _chunk_bytes(tmp_path / "all.h5")[(10,)][0] == 1


def test_chunks_that_were_never_written_stay_fill_values(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            dataset = file.create_dataset("x", (30,), "i8", chunks=(10,), compression="gzip", fillvalue=-5)
            dataset[10:20] = i
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    expected = [-5] * 10 + [0] * 10 + [-5] * 20 + [1] * 10 + [-5] * 10
    assert read(tmp_path / "all.h5").tolist() == expected
    assert len(_chunk_bytes(tmp_path / "all.h5")) == 2


def test_nan_scalars_and_attributes_equal_themselves(tmp_path):
    files = [write_file(tmp_path / f"{i}.h5", x=[1.0], s=np.float64(np.nan)) for i in range(2)]
    mixed = np.array((np.nan, 1), [("a", "f8"), ("b", "i4")])
    for path in files:
        with h5py.File(path, "a") as file:
            file["m"] = mixed
            file["x"].attrs["m"] = mixed
    report = merge(files, tmp_path / "all.h5")
    assert np.isnan(read(tmp_path / "all.h5", "s"))
    assert report.dropped_attributes == {}
    write_file(files[1], x=[1.0], s=np.float64(1.5), m=mixed)
    with pytest.raises(SchemaError, match="scalar 's' differs"):
        merge(files, tmp_path / "b.h5")


# -- many -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_more_files_than_descriptors_are_merged(tmp_path, mode):
    files = [write_file(tmp_path / f"{i}.h5", x=[i, i + 0.5], y=["t"]) for i in range(150)]
    with few_descriptors(50):
        merge(files, tmp_path / "all.h5", mode=mode)
    assert read(tmp_path / "all.h5").tolist() == [value for i in range(150) for value in (i, i + 0.5)]


class Bar:
    """The positions of a progress bar in each part."""

    def __init__(self):
        self.parts, self.totals = {}, set()

    def __call__(self, done, total):
        self.totals.add(total)
        list(self.parts.values())[-1].append(done)

    def describe(self, name):
        self.parts[name] = []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["inspect", "copy", "check", "compare"]),
        ({"mode": "virtual"}, ["inspect", "copy", "check", "compare"]),
        ({"check": "full"}, ["inspect", "copy", "check", "compare"]),
        ({"order_by": "key"}, ["inspect", "sort keys", "copy", "put in order", "check", "compare"]),
    ],
)
def test_every_part_moves_the_progress(tmp_path, options, expected):
    files = [tmp_path / f"{i}.h5" for i in range(3)]
    for i, path in enumerate(files):
        with h5py.File(path, "w") as file:
            file["key"] = np.arange(i, 90_000, 3)
            file.create_dataset(
                "x", data=np.random.default_rng(i).random((30_000, 8)), chunks=(5000, 8), compression="gzip"
            )
    bar = Bar()
    merge(files, tmp_path / "all.h5", progress=bar, **options)
    size_bytes = sum(path.stat().st_size for path in files)
    assert bar.totals == {size_bytes}
    assert list(bar.parts) == [*expected, "sync to disk"]
    moves = [done for part in bar.parts.values() for done in part]
    assert moves == sorted(moves)
    assert moves[-1] == size_bytes
    moving = [name for name, done in bar.parts.items() if done[-1] > done[0]]
    still = ["copy", "check"] if options.get("mode") == "virtual" else []
    assert moving == [name for name in bar.parts if name not in still]


def test_the_copy_of_one_large_source_moves_the_progress(tmp_path):
    for compression in (None, "gzip"):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            rows = np.random.default_rng(1).random(3_000_000)
            file.create_dataset("x", data=rows, chunks=(30_000,), compression=compression)
        bar = Bar()
        merge(tmp_path / "a.h5", tmp_path / "all.h5", progress=bar, exists="replace")
        assert len(set(bar.parts["copy"])) > 2


def test_every_error_is_of_the_tree(tmp_path):
    with pytest.raises(ShardkeepError):
        merge([tmp_path], tmp_path / "all.h5")


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_one_file_under_two_names_is_refused(tmp_path, link):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1, 2]
    link(tmp_path / "a.h5", tmp_path / "b.h5")
    with pytest.raises(PlanError, match=r"one file.* twice"):
        merge([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "all.h5")
    with pytest.raises(PlanError, match="named twice"):
        merge([str(tmp_path / "a.h5")] * 2, tmp_path / "all.h5")


def test_folders_whose_names_are_not_unicode_are_merged(tmp_path):
    folder = os.fsencode(tmp_path) + b"/r\xff%b"
    with WorkerFile(os.fsdecode(folder), World(rank=0, size=1)) as out:
        out.append("x", [1, 2])
        out.commit(step=1)
    report = merge(os.fsdecode(folder), tmp_path / "all.h5")
    assert verify(report.output).ok
    with h5py.File(report.output) as file:
        assert os.fsencode(file["_provenance"].attrs["root"]) == folder
    with pytest.raises(PlanError, match="not valid UTF-8"):
        merge(os.fsdecode(folder), tmp_path / "virtual.h5", mode="virtual")
    assert not (tmp_path / "virtual.h5").exists()
