import contextlib
import os
import zlib

import h5py
import numpy as np
import pytest

import shardkeep.hdf5
from shardkeep.errors import CorruptDataError, NotFoundError, TruncatedFileError
from shardkeep.hdf5 import WorkerFile, merge, verify
from shardkeep.world import World
from tests.descriptors import few_descriptors


@pytest.fixture
def run(tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.put("labels", np.arange(3) + rank)
            for step in range(2):
                out.append("x", np.arange(2000.0) + rank * 10_000 + step)
                out.append("t", [f"word {rank} {step}"])
                out.commit(step=step)
    return tmp_path / "run"


def _flip(path, needle):
    data = bytearray(path.read_bytes())
    assert data.count(needle) == 1
    data[data.index(needle)] ^= 1
    path.write_bytes(data)


def test_a_changed_segment_is_found(run):
    path = run / "rank-00001" / "00000000-step-0.h5"
    found = verify(path)
    assert (found.kind, found.rows, found.ok, found.record.rank) == ("segment", 2001, True, 1)
    _flip(path, np.array([10_500.0]).tobytes())
    (text,) = verify(path).findings
    assert "rows of 'x'" in text and "not those of its commit" in text


def test_a_changed_value_that_was_put_is_found(run):
    path = run / "rank-00001" / "00000000-step-0.h5"
    _flip(path, np.arange(1, 4).tobytes())
    (text,) = verify(path).findings
    assert "value 'labels'" in text


@pytest.mark.parametrize("order_by", ["rank", "step"])
def test_changed_rows_of_a_merged_copy_are_found(run, tmp_path, order_by):
    merge(run, tmp_path / "all.h5", order_by=order_by)
    done = []
    found = verify(tmp_path / "all.h5", progress=done.append)
    assert (found.kind, found.rows, found.ok) == ("merged", 8004, True)
    assert sum(done) >= 8000 * 8
    assert found.to_dict()["ok"]
    _flip(
        tmp_path / "all.h5", np.array([10_500.0, 10_501.0, 10_502.0]).tobytes()
    ) if order_by == "x" else None
    with h5py.File(tmp_path / "all.h5", "a") as file:
        file["x"][4100] = -1
        file["t"][0] = "other"
    texts = verify(tmp_path / "all.h5").findings
    assert len(texts) == 2
    assert any("rows 4000 to 5999 of 'x': the file has other rows" in text for text in texts)


def test_changed_chunks_of_a_merged_copy_are_found(tmp_path):
    files = []
    for i in range(3):
        files.append(tmp_path / f"{i}.h5")
        with h5py.File(files[-1], "w") as file:
            file.create_dataset("x", data=np.arange(100) + i, chunks=(10,), compression="gzip")
    merge(files, tmp_path / "all.h5")
    assert verify(tmp_path / "all.h5").ok
    with h5py.File(tmp_path / "all.h5", "r") as file:
        info = file["x"].id.get_chunk_info(13)
    with open(tmp_path / "all.h5", "r+b") as file:
        file.seek(info.byte_offset + 9)
        file.write(b"\xff")
    (text,) = verify(tmp_path / "all.h5").findings
    assert text == "rows 100 to 199 of 'x': the file has other chunks"
    with h5py.File(tmp_path / "all.h5", "a") as file:
        file["x"].resize(250, 0)
    assert [text for text in verify(tmp_path / "all.h5").findings if "has 250 rows, 300 were merged" in text]
    with h5py.File(tmp_path / "all.h5", "a") as file:
        del file["x"]
    assert verify(tmp_path / "all.h5").findings[0].endswith("the file is not there")


def test_changed_sources_of_a_virtual_file_are_found(run, tmp_path):
    merge(run, tmp_path / "all.h5", mode="virtual")
    found = verify(tmp_path / "all.h5")
    assert (found.kind, found.ok) == ("virtual", True)
    one, two, three, four = sorted(run.rglob("*.h5"))
    os.unlink(one)
    os.truncate(two, 2000)
    with h5py.File(three, "a") as file:
        file["x"].resize(1999, 0) if file["x"].chunks else None
        rows = file["x"][:]
        del file["x"]
        file["x"] = rows[:1999]
    _flip(four, b"word 1 1")
    texts = verify(tmp_path / "all.h5").findings
    assert len(texts) == 4
    assert "there is no file" in texts[0] and "cut off" in texts[1]
    assert texts[2].endswith("has 1999 rows of 'x', not 2000")
    assert texts[3].endswith("has other rows of 't' than when it was merged")


def test_a_virtual_file_may_move_with_its_sources(run, tmp_path):
    merge(run, tmp_path / "all.h5", mode="virtual")
    (tmp_path / "elsewhere").mkdir()
    os.rename(run, tmp_path / "elsewhere" / "run")
    assert not verify(tmp_path / "all.h5").ok
    os.rename(tmp_path / "all.h5", tmp_path / "elsewhere" / "all.h5")
    assert verify(tmp_path / "elsewhere" / "all.h5").ok


def test_a_virtual_file_is_verified_through_a_link_in_another_folder(run, tmp_path):
    merge(run, tmp_path / "all.h5", mode="virtual")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.h5").symlink_to("../all.h5")
    found = verify(tmp_path / "elsewhere" / "link.h5")
    assert (found.kind, found.findings, found.rows) == ("virtual", (), 8004)


def test_virtual_datasets_of_other_programs_are_verified(tmp_path):
    def build(dtype):
        with h5py.File(tmp_path / "v.h5", "w", libver="latest") as file:
            layout = h5py.VirtualLayout((2000,), dtype)
            for i in range(200):
                layout[10 * i : 10 * i + 10] = h5py.VirtualSource(f"{i}.h5", "x", (10,))
            file.create_virtual_dataset("x", layout)

    for i in range(200):
        with h5py.File(tmp_path / f"{i}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(10) + 300, chunks=(5,), compression="gzip")
    build("i8")
    with few_descriptors(60):  # HDF5 alone would fill in from here on
        assert verify(tmp_path / "v.h5").findings == ()
    build("u1")
    assert "does not fit into uint8" in verify(tmp_path / "v.h5").findings[0]
    build("i8")
    with h5py.File(tmp_path / "7.h5", "r+") as file:
        where = file["x"].id.get_chunk_info(1).byte_offset
    with open(tmp_path / "7.h5", "r+b") as file:
        file.seek(where)
        file.write(b"\xff" * 8)
    assert "cannot be read" in verify(tmp_path / "v.h5").findings[0]
    os.unlink(tmp_path / "7.h5")
    assert "7.h5" in verify(tmp_path / "v.h5").findings[0]


def test_any_hdf5_file_is_read_completely(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/x", data=np.arange(1000), chunks=(100,), compression="gzip", shuffle=True)
        file["s"] = "scalar"
        file["e"] = h5py.Empty("f4")
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:2] = h5py.VirtualSource("gone.h5", "x", (2,))
        layout[2:] = h5py.VirtualSource(".", "g/x", (1000,))[:2]
        file.create_virtual_dataset("v", layout)
        file.create_dataset("o", (2,), "i8", external=[("raw.bin", 0, 16)])
        info = file["g/x"].id.get_chunk_info(4)
    with open(tmp_path / "a.h5", "r+b") as file:
        file.seek(info.byte_offset + 3)
        file.write(b"\xff" * 8)
    texts = verify(tmp_path / "a.h5").findings
    assert len(texts) >= 3
    assert any("'g/x'" in text and "cannot be read" in text for text in texts)
    assert any("gone.h5" in text for text in texts)
    assert any("raw.bin" in text for text in texts)


def test_files_that_cannot_be_opened_are_errors(tmp_path):
    with pytest.raises(NotFoundError):
        verify(tmp_path / "gone.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(1000)
    os.truncate(tmp_path / "a.h5", 3000)
    with pytest.raises(TruncatedFileError):
        verify(tmp_path / "a.h5")


@pytest.mark.parametrize("opener", [h5py.File, shardkeep.hdf5.open])
def test_a_file_that_this_process_also_reads_is_verified(run, tmp_path, opener):
    path = run / "rank-00001" / "00000000-step-0.h5"
    with opener(path, "r") as file:
        assert file["x"][0] == 10_000.0
        assert verify(path).ok
        assert merge(run, tmp_path / "all.h5").rows["x"] == 8000
        assert file["x"][1] == 10_001.0


def test_chunks_that_were_damaged_before_the_merge_are_found(tmp_path):
    # The chunks of a file that is not a worker's have no hash: only decoding finds damage, and a merge
    # decodes few.
    for name in "abc":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=np.sin(np.arange(2000)), chunks=(1000,), compression="gzip")
            info = file["x"].id.get_chunk_info(1)
    data = bytearray((tmp_path / "c.h5").read_bytes())
    data[info.byte_offset + info.size // 2] ^= 0x10
    (tmp_path / "c.h5").write_bytes(data)
    with pytest.raises(CorruptDataError, match="cannot be read"):
        merge(str(tmp_path / "?.h5"), tmp_path / "all.h5", check="full")
    with pytest.raises(CorruptDataError, match="cannot be read"):
        merge([tmp_path / "c.h5"], tmp_path / "all.h5")
    merge(str(tmp_path / "?.h5"), tmp_path / "all.h5")
    (text,) = verify(tmp_path / "all.h5").findings
    assert "rows of 'x'" in text and "cannot be read" in text


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("name", ["same", "own", "scalar"])
def test_a_changed_value_of_a_merged_file_is_found(tmp_path, mode, name):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.put("same", np.arange(5))
            out.put("own", [f"rank {rank}"])
            out.put("scalar", 7)
            out.append("x", [1.0])
            out.declare("none", "f4")
            out.commit(step=1)
    merge(tmp_path / "run", tmp_path / "all.h5", mode=mode)
    assert verify(tmp_path / "all.h5").ok
    with h5py.File(tmp_path / "all.h5", "a") as file:
        file[name][...] = 3 if name != "own" else "other"
    (text,) = verify(tmp_path / "all.h5").findings
    assert text == f"the value {name!r}: the file has another value"
    with h5py.File(tmp_path / "all.h5", "a") as file:
        del file[name]
    (text,) = verify(tmp_path / "all.h5").findings
    assert text == f"the value {name!r}: the file is not there"


@pytest.mark.parametrize("name", ["x", "none"])
def test_rows_that_were_added_after_the_merge_are_found(run, tmp_path, name):
    with WorkerFile(run, World(rank=0, size=2)) as out:
        out.declare("none", "f4")
        out.commit(step=2)
    merge(run, tmp_path / "all.h5", incomplete="allow")
    with h5py.File(tmp_path / "all.h5", "a") as file:
        rows = file[name][:]
        del file[name]
        file[name] = np.append(rows, rows.dtype.type(7))
    (text,) = verify(tmp_path / "all.h5").findings
    assert text == f"{name!r} has {len(rows) + 1} rows, {len(rows)} were merged"


def test_a_missing_value_is_found(run, tmp_path):
    path = run / "rank-00001" / "00000000-step-0.h5"
    with h5py.File(path, "a") as file:
        del file["labels"]
    (text,) = verify(path).findings
    assert "'labels'" in text and "cannot be read" in text
    with pytest.raises(CorruptDataError, match=r"'labels' .* is not there"):
        merge(run, tmp_path / "all.h5")


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_a_damaged_value_is_not_merged(run, tmp_path, mode):
    _flip(run / "rank-00001" / "00000000-step-0.h5", np.arange(1, 4).tobytes())
    with pytest.raises(CorruptDataError, match=r"the value 'labels' .* not that of its commit"):
        merge(run, tmp_path / "all.h5", mode=mode)
    assert not (tmp_path / "all.h5").exists()


def _flip_padding(path):
    """Flip a bit after the end of a compressed stream, which is not decoded; return False without one."""
    with h5py.File(path) as file:
        place = file["x"].id.get_chunk_info(0)
    data, start, stop = path.read_bytes(), place.byte_offset, place.byte_offset + place.size
    at = stop - 5  # before the checksum of four bytes
    for bit in range(8):
        changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        with contextlib.suppress(zlib.error):
            if zlib.decompress(changed[start:stop]) == zlib.decompress(data[start:stop]):
                path.write_bytes(changed)
                return True
    return False


def test_other_chunks_with_the_same_rows_are_found(tmp_path):
    """A merge copies chunks as they are, and refuses these."""
    with WorkerFile(tmp_path / "run", World(rank=0, size=1), compression="gzip", shuffle=False) as out:
        for step in range(8):
            out.append("x", np.arange(100 + 7 * step))
            out.commit(step=step)
    path = next(one for one in (tmp_path / "run" / "rank-00000").glob("*.h5") if _flip_padding(one))
    assert verify(path).findings == ("the chunks of 'x' are not those of its commit",)
    with pytest.raises(CorruptDataError, match="are not those of its commit"):
        merge([path], tmp_path / "all.h5", incomplete="allow")
