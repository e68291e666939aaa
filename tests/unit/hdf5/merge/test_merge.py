import errno
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    CorruptDataError,
    DurabilityError,
    ExistsError,
    FormatError,
    LockError,
    NotFoundError,
    PlanError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.hdf5 import WorkerFile, merge, plan_merge, receipts, rollback, verify
from shardkeep.world import World
from tests.descriptors import few_descriptors

GZIP = {"compression": "gzip", "shuffle": True}


def _plain(path, **datasets):
    """Write an HDF5 file; a dataset is its rows, or (rows, options)."""
    with h5py.File(path, "w") as file:
        for name, rows in datasets.items():
            rows, options = rows if isinstance(rows, tuple) else (rows, {})
            file.create_dataset(name.replace("__", "/"), data=rows, **options)
    return path


def _read(path, name="x"):
    with h5py.File(path) as file:
        return file[name][()]


@pytest.fixture
def three(tmp_path):
    return [_plain(tmp_path / f"{i}.h5", x=np.arange(i * 10, i * 10 + 10)) for i in range(3)]


# -- what is in the result --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "copy", "virtual"])
def test_plain_files_are_merged_in_the_order_of_the_list(tmp_path, three, mode):
    report = merge([three[2], three[0], three[1]], tmp_path / "all.h5", mode=mode)
    assert _read(tmp_path / "all.h5").tolist() == [*range(20, 30), *range(20)]
    assert report.rows == {"x": 30}
    assert report.sources == (str(three[2]), str(three[0]), str(three[1]))
    assert report.bytes == os.path.getsize(tmp_path / "all.h5")
    assert report.to_dict()["rows"] == {"x": 30}


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
    assert _read(tmp_path / "moved" / "all.h5").tolist() == list(range(30))


def test_a_percent_sign_in_names_of_virtual_sources_is_kept(tmp_path):
    files = [_plain(tmp_path / f"100%b {i}.h5", **{"a%d": [i, i + 0.5]}) for i in range(2)]
    merge(files, tmp_path / "all.h5", mode="virtual")
    assert _read(tmp_path / "all.h5", "a%d").tolist() == [0, 0.5, 1, 1.5]


def test_datasets_without_rows_and_scalars_are_kept(tmp_path):
    options = {"a": np.empty((0, 3)), "n": np.int32(7), "t": "text", "x": [1.0]}
    files = [_plain(tmp_path / f"{i}.h5", **options, nothing=h5py.Empty("f4")) for i in range(2)]
    for mode in ("copy", "virtual"):
        report = merge(files, tmp_path / f"{mode}.h5", mode=mode)
        assert report.rows == {"a": 0, "x": 2}
        with h5py.File(report.output) as file:
            assert file["a"].shape == (0, 3)
            assert (file["n"][()], file["n"].dtype) == (7, "i4")
            assert file["t"].asstr()[()] == "text"
            assert file["nothing"].shape is None
    _plain(tmp_path / "2.h5", **{**options, "n": np.int32(8)}, nothing=h5py.Empty("f4"))
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
        _plain(tmp_path / f"{i}.h5", x=(np.array([b"ab", b"c"], text), {"dtype": text})) for i in range(2)
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
        _plain(tmp_path / f"{i}.h5", x=(data[a:b], layout))
        for i, (a, b) in enumerate([(0, 40), (40, 60), (60, 95)])
    ]
    report = merge(files, tmp_path / "all.h5")
    assert report.ways["x"].startswith("chunks:")
    assert (_read(tmp_path / "all.h5") == data[:95]).all()
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
        files.append(_plain(folder / f"{i}.h5", x=(rows, chunks)))
        start += length
    merge(files, folder / "all.h5")
    assert _read(folder / "all.h5").tolist() == list(range(start))


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
        files.append(_plain(tmp_path / f"{i}.h5", x=(np.arange(rows) + i * rows, {**GZIP, **options})))
    plan = plan_merge(files, tmp_path / "all.h5")
    assert reason in plan.datasets[0].reason or "ends inside" in plan.datasets[0].reason
    merge(files, tmp_path / "all.h5")
    assert _read(tmp_path / "all.h5").tolist() == list(range(2 * rows))


def test_the_filter_mask_of_a_chunk_is_kept(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            dataset = file.create_dataset("x", (10,), "i8", chunks=(10,), compression="gzip")
            dataset.id.write_direct_chunk((0,), np.arange(10).tobytes(), 1)  # gzip left out
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    assert _read(tmp_path / "all.h5").tolist() == [*range(10), *range(10)]
    assert _chunk_bytes(tmp_path / "all.h5")[(10,)][0] == 1


def test_chunks_that_were_never_written_stay_fill_values(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            dataset = file.create_dataset("x", (30,), "i8", chunks=(10,), compression="gzip", fillvalue=-5)
            dataset[10:20] = i
    merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")
    expected = [-5] * 10 + [0] * 10 + [-5] * 20 + [1] * 10 + [-5] * 10
    assert _read(tmp_path / "all.h5").tolist() == expected
    assert len(_chunk_bytes(tmp_path / "all.h5")) == 2


# -- what is refused ---------------------------------------------------------------------------------

_MISMATCHES = {
    "dtype": (np.zeros(2, "f4"), np.zeros(2, "f8")),
    "byte order": (np.zeros(2, "<f4"), np.zeros(2, ">f4")),
    "row shape": (np.zeros((2, 3)), np.zeros((2, 4))),
    "rank": (np.zeros((2, 3)), np.zeros(2)),
    "scalar": (np.zeros(2), np.float64(0)),
    "string": (np.array([b"a"], "S1"), np.array([b"a"], h5py.string_dtype())),
    "enum": tuple(np.zeros(2, h5py.enum_dtype({"A": i}, basetype="i1")) for i in range(2)),
    "fields": (np.zeros(2, [("a", "i4")]), np.zeros(2, [("b", "i4")])),
}


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("kind", _MISMATCHES)
def test_schemas_must_be_equal(tmp_path, kind, mode):
    one, two = _MISMATCHES[kind]
    files = [_plain(tmp_path / f"{i}.h5", x=rows) for i, rows in enumerate((one, one, two))]
    with pytest.raises(SchemaError) as caught:
        merge(files, tmp_path / "all.h5", mode=mode)
    text = str(caught.value)
    assert "\n" not in text
    assert "'x'" in text and "0.h5' and 1 more" in text and "2.h5'" in text
    assert not (tmp_path / "all.h5").exists()


def test_a_dataset_that_some_files_lack_is_refused(tmp_path, three):
    _plain(tmp_path / "3.h5", x=[1], y=[2])
    with pytest.raises(
        SchemaError, match=r"'y' is in .*3.h5' \(1 of 4 files\), but not in .*0.h5' and 2 more"
    ):
        merge([*three, tmp_path / "3.h5"], tmp_path / "all.h5")


def test_a_dataset_in_one_file_and_a_group_in_another_are_refused(tmp_path):
    _plain(tmp_path / "0.h5", x=[1])
    _plain(tmp_path / "1.h5", x__y=[1])
    with pytest.raises(SchemaError, match="at once"):
        merge([tmp_path / "0.h5", tmp_path / "1.h5"], tmp_path / "all.h5")


def test_references_virtual_and_external_datasets_are_refused(tmp_path):
    with h5py.File(tmp_path / "refs.h5", "w") as file:
        file["x"] = [1]
        file.create_dataset("r", data=[file["x"].ref], dtype=h5py.ref_dtype)
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        layout = h5py.VirtualLayout((1,), "i8")
        layout[:] = h5py.VirtualSource("gone.h5", "x", (1,))
        file.create_virtual_dataset("x", layout)
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("x", (2,), "i8", external=[(str(tmp_path / "raw.bin"), 0, 16)])
    for name in ("refs", "virtual", "external"):
        with pytest.raises(SchemaError, match=f"{name}.h5"):
            merge([tmp_path / f"{name}.h5"], tmp_path / "all.h5")


def _garbage(path):
    path.write_bytes(b"not HDF5" * 100)


def _cut(path):
    os.truncate(path, os.path.getsize(path) - 40)


def _break_gzip(path):
    with h5py.File(path) as file:
        info = file["x"].id.get_chunk_info(0)
    with open(path, "r+b") as file:
        file.seek(info.byte_offset + 5)
        file.write(b"\xff" * 10)


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (os.unlink, NotFoundError),
        (_garbage, FormatError),
        (_cut, TruncatedFileError),
        (lambda p: p.write_bytes(b""), FormatError),
    ],
)
def test_an_unreadable_source_is_refused(tmp_path, three, damage, error, mode):
    damage(three[1])
    with pytest.raises(error, match=r"1\.h5"):
        merge(three, tmp_path / "all.h5", mode=mode)
    assert not [name for name in os.listdir(tmp_path) if "all" in name]


def test_a_chunk_that_cannot_be_decoded_is_refused(tmp_path):
    odd = {**GZIP, "chunks": (7,)}
    files = [_plain(tmp_path / f"{i}.h5", x=(np.arange(20), odd if i else GZIP)) for i in range(2)]
    _break_gzip(files[1])
    with pytest.raises(CorruptDataError, match=r"1\.h5"):
        merge(files, tmp_path / "all.h5")
    assert not [name for name in os.listdir(tmp_path) if "all" in name]


def test_a_source_that_a_writer_has_open_is_refused(tmp_path, three):
    code = "import h5py, sys; f = h5py.File(sys.argv[1], 'a'); print('open', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(three[1])], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        child.stdout.readline()
        with pytest.raises(LockError, match=r"1\.h5"):
            merge(three, tmp_path / "all.h5")
        child.stdin.close()


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("where", ["rows", "text"])
def test_a_flipped_bit_in_a_segment_is_found(tmp_path, where, mode):
    run = tmp_path / "run"
    with WorkerFile(run, World(rank=0, size=1)) as out:
        out.append("x", np.arange(1000, dtype="f4"))
        out.append("t", [f"word {i}" for i in range(50)])
        out.commit(step=1)
    path = run / "rank-00000" / "00000000-step-1.h5"
    data = bytearray(path.read_bytes())
    needle = np.arange(500, 504, dtype="f4").tobytes() if where == "rows" else b"word 33"
    assert data.count(needle) == 1
    data[data.index(needle) + 2] ^= 8
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"00000000-step-1\.h5"):
        merge(run, tmp_path / "all.h5", mode=mode)
    assert not [name for name in os.listdir(tmp_path) if "all" in name]


def test_a_segment_that_lost_rows_is_refused(tmp_path):
    run = tmp_path / "run"
    with WorkerFile(run, World(rank=0, size=1)) as out:
        out.append("x", np.zeros(300_000))
        out.commit(step=1)
    with h5py.File(run / "rank-00000/00000000-step-1.h5", "a") as file:
        file["x"].resize(299_999, 0)
    for mode in ("copy", "virtual"):
        with pytest.raises(CorruptDataError, match="300000"):
            merge(run, tmp_path / "all.h5", mode=mode)


def test_a_segment_of_another_run_is_refused(tmp_path):
    for name, rows in (("one", 10), ("two", 20)):
        with WorkerFile(tmp_path / name, World(rank=0, size=1)) as out:
            for step in range(3):
                out.append("x", np.zeros(rows))
                out.commit(step=step)
    place = "rank-00000/00000001-step-1.h5"
    os.replace(tmp_path / "two" / place, tmp_path / "one" / place)
    with pytest.raises(CorruptDataError, match="where the one before ended"):
        merge(tmp_path / "one", tmp_path / "all.h5")


def test_an_empty_list_or_folder_is_refused(tmp_path):
    WorkerFile(tmp_path / "run", World(rank=0, size=1)).close()
    for sources in ([], tmp_path / "run", tmp_path / "gone", tmp_path):
        with pytest.raises(NotFoundError):
            merge(sources, tmp_path / "all.h5")


def test_invalid_arguments_are_refused(tmp_path, three):
    with pytest.raises(PlanError, match="mode"):
        merge(three, tmp_path / "all.h5", mode="link")
    with pytest.raises(PlanError, match="exists"):
        merge(three, tmp_path / "all.h5", exists="append")
    with pytest.raises(PlanError, match="twice"):
        merge([*three, f"{tmp_path}/./0.h5"], tmp_path / "all.h5")
    with pytest.raises(PlanError, match="source at once"):
        merge(three, three[0], exists="replace")
    with pytest.raises(ExistsError):
        merge(three, three[0])
    for exists in ("fail", "replace"):
        with pytest.raises(ExistsError, match="is a folder: pass the path of a file in it"):
            merge(three, tmp_path, exists=exists)
    with pytest.raises(NotFoundError, match="folder"):
        merge(three, tmp_path / "gone" / "all.h5")
    assert _read(three[0]).tolist() == list(range(10))


def test_an_existing_output_is_replaced_only_by_a_complete_one(tmp_path, three):
    merge(three[:1], tmp_path / "all.h5")
    _cut(three[2])
    with pytest.raises(TruncatedFileError):
        merge(three, tmp_path / "all.h5", exists="replace")
    assert _read(tmp_path / "all.h5").tolist() == list(range(10))
    merge(three[:2], tmp_path / "all.h5", exists="replace")
    assert _read(tmp_path / "all.h5").tolist() == list(range(20))


@pytest.mark.parametrize("function", ["pwrite", "fsync", "link"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_write_error_at_any_point_leaves_no_output(tmp_path, three, monkeypatch, function, number):
    if (function != "pwrite" and number == 5) or (function == "link" and number > 1):
        return
    calls = []
    original = getattr(os, function)

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(*arguments, **options)

    monkeypatch.setattr(os, function, failing)
    with pytest.raises(DurabilityError) as caught:
        merge(three, tmp_path / "all.h5")
    assert caught.value.errno == errno.EIO
    assert sorted(os.listdir(tmp_path)) == ["0.h5", "1.h5", "2.h5"]


def test_a_result_that_differs_is_not_kept(tmp_path, three, monkeypatch):
    original = os.pwrite

    def flip(fd, data, offset):
        data = bytearray(data)
        where = data.find(np.arange(12, 16).tobytes())
        if where >= 0:
            data[where] ^= 1
        return original(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", flip)
    with pytest.raises(CorruptDataError, match="was not kept"):
        merge(three, tmp_path / "all.h5")
    assert sorted(os.listdir(tmp_path)) == ["0.h5", "1.h5", "2.h5"]


# -- what is not there ------------------------------------------------------------------------------


def _run(run, size, *steps, ranks=None):
    """Let ranks commit one row per step, as one world; return the folder."""
    for rank in range(size) if ranks is None else ranks:
        with WorkerFile(run, World(rank=rank, size=size)) as out:
            for step in steps:
                out.append("x", [rank + step / 10])
                out.commit(step=step)
    return run


def _segments(run):
    return sorted(run.glob("rank-*/*.h5"))


def _findings(sources, output):
    """Merge twice: with the warning as an error nothing is written, then the findings are reported."""
    with pytest.raises(RuntimeWarning, match="the merged run is not complete"):
        merge(sources, output)
    with pytest.raises(CorruptDataError):
        merge(sources, output, incomplete="refuse")
    assert not output.exists()
    report = merge(sources, output, incomplete="allow")
    assert report.to_dict()["findings"] == report.findings
    with pytest.warns(RuntimeWarning, match="the merged run is not complete"):
        merge(sources, output, exists="replace")
    return report.findings


def test_a_complete_run_has_no_findings(tmp_path):
    run = _run(tmp_path / "run", 3, 1, 2)
    assert merge(run, tmp_path / "a.h5", incomplete="refuse").findings == ()
    assert merge(_segments(run), tmp_path / "b.h5", incomplete="refuse").findings == ()
    with pytest.raises(PlanError, match="incomplete"):
        merge(run, tmp_path / "c.h5", incomplete="maybe")


@pytest.mark.parametrize("listed", [False, True])
def test_a_rank_without_commits_is_a_finding(tmp_path, listed):
    run = _run(tmp_path / "run", 8, 1, 2, 3, ranks=[0, 2])
    sources = _segments(run) if listed else run
    (text,) = _findings(sources, tmp_path / "a.h5")
    assert text == (
        f"ranks 1, 3, 4, 5, 6 and 1 more of 8 have no commit (the newest is step 3) in {str(run)!r}"
    )
    assert _read(tmp_path / "a.h5").tolist() == [0.1, 0.2, 0.3, 2.1, 2.2, 2.3]


@pytest.mark.parametrize("listed", [False, True])
def test_a_rank_that_lost_its_newest_commit_is_a_finding(tmp_path, listed):
    run = _run(tmp_path / "run", 2, 1, 2, 3)
    os.unlink(_segments(run)[-1])
    (text,) = _findings(_segments(run) if listed else run, tmp_path / "a.h5")
    assert text.startswith("rank 1 of 2 ended at step 2, the newest commit is step 3 in ")


def test_a_list_with_a_gap_or_out_of_order_is_refused(tmp_path):
    one, two, three, *_ = _segments(_run(tmp_path / "run", 2, 1, 2, 3))
    for sources in ([one, three], [two, one], [one, three, two]):
        with pytest.raises(CorruptDataError, match="where the one before ended: list every segment"):
            merge(sources, tmp_path / "a.h5", incomplete="allow")
    assert not (tmp_path / "a.h5").exists()


def test_a_list_that_begins_in_the_middle_is_a_finding(tmp_path):
    run = _run(tmp_path / "run", 1, 1, 2, 3)
    texts = _findings(_segments(run)[1:], tmp_path / "a.h5")
    assert texts == ("the list begins with commit 1 (step 2) of rank 0, not with commit 0",)
    assert _read(tmp_path / "a.h5").tolist() == [0.2, 0.3]


def test_a_list_may_have_segments_of_two_runs(tmp_path):
    sources = [path for name in "ab" for path in _segments(_run(tmp_path / name, 2, 1, 2))]
    assert merge(sources, tmp_path / "all.h5", incomplete="refuse").rows == {"x": 8}


@pytest.mark.parametrize("step", [1, -1])
def test_commits_of_ranks_that_a_smaller_world_lacks_are_a_finding(tmp_path, step):
    """Only hdf5.rollback reaches ranks that no longer exist."""
    run = _run(tmp_path / "run", 3, 1, 2, 3)
    with WorkerFile(run, World(rank=0, size=1)) as out:
        out.rollback(step=step)
        out.append("x", [0.2, 0.2, 0.2])
        out.commit(step=2)
    (text,) = _findings(run, tmp_path / "a.h5")
    assert text.startswith("ranks 1, 2 of an earlier world have commits up to step 3, although a world of 1")
    assert "hdf5.rollback" in text
    for rank in (1, 2):
        with WorkerFile(run, World(rank=rank, size=3)) as out:
            out.rollback(step=1)
    assert merge(run, tmp_path / "b.h5", incomplete="refuse").findings == ()


def test_worlds_may_shrink_and_grow_after_a_rollback(tmp_path):
    run = _run(tmp_path / "run", 4, 1, 2, 3)
    for size, start in ((3, 2), (4, 5), (2, 7)):
        rollback(run, step=start)
        _run(run, size, start + 1, start + 2, start + 3)
        merge(run, tmp_path / "a.h5", exists="replace", incomplete="refuse")


def test_the_world_size_of_a_record_is_checked(tmp_path):
    run = _run(tmp_path / "run", 10, 1, ranks=[0])
    path = _segments(run)[0]
    path.write_bytes(path.read_bytes().replace(b'"world_size":10', b'"world_size":-1'))
    with pytest.raises(CorruptDataError, match="record"):
        merge(run, tmp_path / "a.h5")


def test_nan_scalars_and_attributes_equal_themselves(tmp_path):
    files = [_plain(tmp_path / f"{i}.h5", x=[1.0], s=np.float64(np.nan)) for i in range(2)]
    mixed = np.array((np.nan, 1), [("a", "f8"), ("b", "i4")])
    for path in files:
        with h5py.File(path, "a") as file:
            file["m"] = mixed
            file["x"].attrs["m"] = mixed
    report = merge(files, tmp_path / "all.h5")
    assert np.isnan(_read(tmp_path / "all.h5", "s"))
    assert report.dropped_attributes == {}
    _plain(files[1], x=[1.0], s=np.float64(1.5), m=mixed)
    with pytest.raises(SchemaError, match="scalar 's' differs"):
        merge(files, tmp_path / "b.h5")


# -- many -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_more_files_than_descriptors_are_merged(tmp_path, mode):
    files = [_plain(tmp_path / f"{i}.h5", x=[i, i + 0.5], y=["t"]) for i in range(150)]
    done = []
    with few_descriptors(50):
        merge(files, tmp_path / "all.h5", mode=mode, progress=lambda one, all: done.append((one, all)))
    assert done == [(i + 1, 150) for i in range(150)]
    assert _read(tmp_path / "all.h5").tolist() == [value for i in range(150) for value in (i, i + 0.5)]


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
