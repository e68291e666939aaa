import errno
import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import (
    CorruptDataError,
    DurabilityError,
    ExistsError,
    FormatError,
    LockError,
    NotFoundError,
    PlanError,
    SchemaError,
    TruncatedFileError,
)
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World
from tests.unit.hdf5.merge.plain_files import read, write_file

GZIP = {"compression": "gzip", "shuffle": True}


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
    files = [write_file(tmp_path / f"{i}.h5", x=rows) for i, rows in enumerate((one, one, two))]
    with pytest.raises(SchemaError) as caught:
        merge(files, tmp_path / "all.h5", mode=mode)
    text = str(caught.value)
    assert "\n" not in text
    assert "'x'" in text and "0.h5' and 1 more" in text and "2.h5'" in text
    assert not (tmp_path / "all.h5").exists()


def test_a_dataset_that_some_files_lack_is_refused(tmp_path, three):
    write_file(tmp_path / "3.h5", x=[1], y=[2])
    with pytest.raises(
        SchemaError, match=r"'y' is in .*3.h5' \(1 of 4 files\), but not in .*0.h5' and 2 more"
    ):
        merge([*three, tmp_path / "3.h5"], tmp_path / "all.h5")


def test_a_dataset_in_one_file_and_a_group_in_another_are_refused(tmp_path):
    write_file(tmp_path / "0.h5", x=[1])
    write_file(tmp_path / "1.h5", x__y=[1])
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
    files = [write_file(tmp_path / f"{i}.h5", x=(np.arange(20), odd if i else GZIP)) for i in range(2)]
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
    assert read(three[0]).tolist() == list(range(10))


def test_an_existing_output_is_replaced_only_by_a_complete_one(tmp_path, three):
    merge(three[:1], tmp_path / "all.h5")
    _cut(three[2])
    with pytest.raises(TruncatedFileError):
        merge(three, tmp_path / "all.h5", exists="replace")
    assert read(tmp_path / "all.h5").tolist() == list(range(10))
    merge(three[:2], tmp_path / "all.h5", exists="replace")
    assert read(tmp_path / "all.h5").tolist() == list(range(20))


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
