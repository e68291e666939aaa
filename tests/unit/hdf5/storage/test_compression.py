import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, MissingExtraError, PlanError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.hdf5.storage.compression import compression_filters
from shardkeep.world import World
from tests.unit.hdf5.worker.float_rows import float_rows
from tests.waiting import PATIENCE_S

WORLD = World(rank=0, size=1)
F4 = np.dtype("f4")
GZIP, SHUFFLE, LZF, ZSTD, BLOSC2 = 1, 2, 32000, 32015, 32026


def _filters(path, name="x"):
    with h5py.File(path) as file:
        properties = file[name].id.get_create_plist()
        return [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]


@pytest.mark.parametrize(
    ("compression", "level", "shuffle", "dtype", "expected"),
    [
        (None, None, None, F4, []),
        (None, None, False, F4, []),
        ("gzip", None, None, F4, [(SHUFFLE, ()), (GZIP, (4,))]),
        ("gzip", 0, None, F4, [(SHUFFLE, ()), (GZIP, (0,))]),
        ("gzip", 9, False, F4, [(GZIP, (9,))]),
        ("gzip", 9, None, np.dtype("u1"), [(GZIP, (9,))]),
        ("gzip", 9, None, np.dtype("S4"), [(GZIP, (9,))]),
        ("gzip", 9, True, np.dtype("S4"), [(SHUFFLE, ()), (GZIP, (9,))]),
        ("lzf", None, None, F4, [(SHUFFLE, ()), (LZF, ())]),
    ],
)
def test_filters_and_their_parameters(compression, level, shuffle, dtype, expected):
    found = compression_filters(compression, level, shuffle, dtype)
    assert [(code, values) for code, _, values in found] == expected


def test_filters_of_the_plugin():
    pytest.importorskip("hdf5plugin")
    assert [one[0] for one in compression_filters("zstd", 5, None, F4)] == [SHUFFLE, ZSTD]
    assert compression_filters("zstd", 5, False, F4)[0][2] == (5,)
    assert [one[0] for one in compression_filters("blosc2", None, None, F4)] == [BLOSC2]
    assert compression_filters("blosc2", 1, True, F4) != compression_filters("blosc2", 1, False, F4)


@pytest.mark.parametrize(
    ("compression", "level", "shuffle", "said"),
    [
        ("zip", None, None, '"?gzip'),
        ("gzip", 10, None, "from 0 to 9"),
        ("gzip", -1, None, "from 0 to 9"),
        ("gzip", True, None, "from 0 to 9"),
        ("gzip", "4", None, "from 0 to 9"),
        ("lzf", 3, None, "no levels"),
        (None, 3, None, "without compression"),
        (None, None, True, "without compression"),
    ],
)
def test_unknown_compressions_are_refused(tmp_path, compression, level, shuffle, said):
    for action in (
        lambda: compression_filters(compression, level, shuffle, F4),
        lambda: WorkerFile(
            tmp_path / "run", WORLD, compression=compression, compression_level=level, shuffle=shuffle
        ),
    ):
        with pytest.raises(PlanError, match=said) as caught:
            action()
        assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []  # told before anything is made


@pytest.mark.parametrize("compression", ["gzip", "lzf", "zstd", "blosc2"])
def test_compressed_rows_survive_two_merges(tmp_path, compression):
    if compression in ("zstd", "blosc2"):
        pytest.importorskip("hdf5plugin")
    pieces = [3, 1024 - 3, 2048, 700, 1, 1, 1024]
    row = 0
    for step, count in enumerate(pieces):
        with WorkerFile(tmp_path / "run", WORLD, durable=False, compression=compression) as out:
            for start in range(row, row + count, 100):
                out.append("x", float_rows(start, min(start + 100, row + count)))
            out.append("t", ["text is not compressed"])
            out.commit(step=step)
        row += count
    folder = tmp_path / "run" / "rank-00000"
    kinds = {tuple(_filters(folder / name)) for name in os.listdir(folder)}
    assert len(kinds) == 1 and kinds != {()}
    assert sum(os.path.getsize(folder / name) for name in os.listdir(folder)) < row * 512 // 4
    for mode in ("copy", "virtual"):
        merge(tmp_path / "run", tmp_path / f"{mode}.h5", mode=mode)
        with h5py.File(tmp_path / f"{mode}.h5") as file:
            assert (file["x"][:] == float_rows(0, row)).all()
            assert len(file["t"]) == len(pieces)
    assert tuple(_filters(tmp_path / "copy.h5")) in kinds


def test_incompressible_rows_are_stored(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (5000, 256), "u1")
    with WorkerFile(tmp_path / "run", WORLD, durable=False, compression="gzip") as out:
        out.append("x", noise)
        out.commit(step=1)
    merge(tmp_path / "run", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:] == noise).all()


def test_each_dataset_has_its_own_compression(tmp_path):
    def declare(out):
        out.declare("default", "f4", (128,))
        out.declare("none", "f4", (128,), compression=None)
        out.declare("lzf", "f4", (128,), compression="lzf", shuffle=False)
        out.declare("level", "f4", (128,), compression="gzip", compression_level=9, chunk_rows=7)
        out.declare("text", str)

    expected = {"default": [SHUFFLE, GZIP], "none": [], "lzf": [LZF], "level": [SHUFFLE, GZIP], "text": []}
    for step in range(2):
        with WorkerFile(tmp_path / "run", WORLD, compression="gzip", compression_level=1) as out:
            declare(out)
            for name in ("default", "none", "lzf", "level"):
                out.append(name, float_rows(0, 10))
            out.commit(step=step)
        path = tmp_path / "run" / "rank-00000" / f"0000000{step}-step-{step}.h5"
        assert {name: _filters(path, name) for name in expected} == expected
        with h5py.File(path) as file:
            assert file["default"].compression_opts == 1
            assert (file["level"].compression_opts, file["level"].chunks) == (9, (7, 128))


def test_restart_keeps_the_compression_of_the_newest_segment(tmp_path):
    with WorkerFile(tmp_path, WORLD) as out:
        out.declare("x", "f4", (128,), compression="lzf", chunk_rows=50)
        out.append("y", float_rows(0, 1))
        out.commit(step=0)
    with WorkerFile(tmp_path, WORLD, compression="gzip") as out:
        for name in ("x", "y"):
            out.append(name, float_rows(0, 1))
        out.commit(step=1)
    with h5py.File(tmp_path / "rank-00000" / "00000001-step-1.h5") as file:
        assert (file["x"].compression, file["x"].chunks) == ("lzf", (50, 128))
        assert file["y"].compression == "gzip"


def test_new_compression_starts_with_a_new_segment(tmp_path):
    with WorkerFile(tmp_path, WORLD) as out:
        out.append("x", float_rows(0, 5))
        with pytest.raises(PlanError, match="uncommitted rows"):
            out.declare("x", "f4", (128,), compression="gzip")
        out.commit(step=0)
        out.declare("x", "f4", (128,), compression="gzip")
        out.append("x", float_rows(5, 3000))
        out.declare("x", "f4", (128,), compression="gzip")
        out.commit(step=1)
    assert _filters(tmp_path / "rank-00000" / "00000001-step-1.h5") == [SHUFFLE, GZIP]
    merge(tmp_path, tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][:] == float_rows(0, 3000)).all()


_WITHOUT_PLUGIN = """
import sys
sys.modules["hdf5plugin"] = None
import h5py
from shardkeep.errors import MissingExtraError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.world import World
from tests.unit.hdf5.worker.float_rows import float_rows
world = World(rank=0, size=1)
for action in (
    lambda: WorkerFile(sys.argv[1], world, compression="zstd"),
    lambda: WorkerFile(sys.argv[2], world),
    lambda: merge(sys.argv[2], sys.argv[2] + "/all.h5", mode="virtual"),
):
    try:
        action()
    except MissingExtraError as error:
        assert "pip install 'shardkeep[compression]'" in str(error), error
    else:
        sys.exit(3)
"""


def test_missing_plugin_error_has_the_install_command(tmp_path):
    pytest.importorskip("hdf5plugin")
    with WorkerFile(tmp_path / "old", WORLD, compression="zstd") as out:
        out.append("x", float_rows(0, 3000))
        out.commit(step=1)
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_PLUGIN, str(tmp_path / "new"), str(tmp_path / "old")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_unknown_filter_is_named(monkeypatch, tmp_path):
    from shardkeep.hdf5.storage import compression

    with h5py.File(tmp_path / "x.h5", "w") as file:
        dataset = file.create_dataset("x", (10,), "f4", compression="lzf")
        monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: False)
        monkeypatch.setattr(compression, "_plugin", lambda *said: None)
        with pytest.raises(MissingExtraError, match="'lzf'"):
            compression.require_filters(dataset)


@pytest.mark.parametrize("compression", ["gzip", "lzf"])
@pytest.mark.parametrize("rows", [2000, 2500], ids=["whole chunks", "last chunk compressed anew"])
@pytest.mark.parametrize("chunk", [0, 1, 2])
def test_damaged_chunk_is_not_merged(tmp_path, compression, rows, chunk):
    # A chunk that is copied as it is was never decoded, so nothing else would tell.
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2), compression=compression) as out:
            out.declare("x", "f8", chunk_rows=1000)
            out.append("x", np.sin(np.arange(rows) + rank))
            out.commit(step=1)
    assert merge(tmp_path / "run", tmp_path / "whole.h5").rows == {"x": 2 * rows}
    path = tmp_path / "run" / "rank-00000" / "00000000-step-1.h5"
    with h5py.File(path) as file:
        if chunk == file["x"].id.get_num_chunks():
            return
        info = file["x"].id.get_chunk_info(chunk)
    data = bytearray(path.read_bytes())
    data[info.byte_offset + info.size // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"rows of 'x' .* (not those of its commit|cannot be read)"):
        merge(tmp_path / "run", tmp_path / "all.h5")
    assert not (tmp_path / "all.h5").exists()
