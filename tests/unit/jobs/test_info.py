"""Contents of files and folders.

Covers `shardkeep.jobs.inspection.workers`.
"""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptRecordError, FormatError, NotFoundError
from shardkeep.hdf5 import WorkerFile
from shardkeep.jobs import FeatureInfo, FolderInfo, HDF5Info, TFRecordInfo, info
from shardkeep.tfrecord import Writer
from shardkeep.world import World
from tests.odd_files import GOOD


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_tfrecord(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.bin"
    with Writer(path, compression=compression) as writer:
        writer.write_example({"label": 3, "w": np.arange(6, dtype="f4") / 10, "image": [b"\x89P", b"x" * 20]})
        writer.write(b"")
        writer.write(b"x" * 500)
    found = info(path)
    assert isinstance(found, TFRecordInfo)
    assert (found.records, found.compression) == (3, compression)
    assert (found.smallest_bytes, found.largest_bytes) == (0, 500)
    assert found.file_bytes == path.stat().st_size
    if compression is None:
        assert found.payload_bytes == found.file_bytes - 3 * 16
    assert found.features == (
        FeatureInfo("image", "bytes", 2, 22, ["\\x89P", "x" * 16]),
        FeatureInfo("label", "int64", 1, None, [3]),
        FeatureInfo("w", "float32", 6, None, [0.0, 0.1, 0.2, 0.3]),
    )
    assert json.loads(json.dumps(found.to_dict()))["kind"] == "tfrecord"


def test_tfrecord_of_something_else(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.write(b"hello")
    found = info(tmp_path / "a")
    assert isinstance(found, TFRecordInfo)
    assert found.features is None


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    found = info(tmp_path / "a")
    assert isinstance(found, TFRecordInfo)
    assert (found.records, found.smallest_bytes, found.largest_bytes, found.features) == (0, None, None, None)


def test_damage_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Writer(path) as writer:
        writer.write(b"hello")
        writer.write(b"world")
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError) as caught:
        info(path)
    assert (caught.value.record, caught.value.path) == (1, str(path))


def test_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("deep/x", data=np.zeros((300, 2), ">i2"), chunks=(100, 2), compression="gzip")
        file["rows"] = np.zeros(2, [("id", "i8"), ("tag", "S3"), ("v", "f4", (2,))])
        file["text"] = ["a", "b"]
        file["ragged"] = np.array([np.zeros(2, "i4"), np.zeros(3, "i4")], object).astype(
            h5py.vlen_dtype("i4")
        )
        file["null"] = h5py.Empty("f4")
        layout = h5py.VirtualLayout((2,), "f4")
        file.create_virtual_dataset("virtual", layout)
        file.attrs["run"] = "seven"
        file.attrs["unit"] = np.bytes_(b"m/s")
        file.attrs["units"] = np.array([b"m", "µs".encode()])
        file.attrs["big"] = np.arange(3)
        file.attrs["none"] = h5py.Empty("f4")
        file["deep/x"].attrs["unit"] = "m"
    found = info(path)
    assert isinstance(found, HDF5Info)
    assert found.attributes == {
        "big": [0, 1, 2],
        "none": "(empty)",
        "run": "seven",
        "unit": "m/s",
        "units": ["m", "µs"],
    }
    by_name = {dataset.name: dataset for dataset in found.datasets}
    assert list(by_name) == ["deep/x", "null", "ragged", "rows", "text", "virtual"]
    assert (by_name["deep/x"].shape, by_name["deep/x"].chunks) == ((300, 2), (100, 2))
    assert by_name["deep/x"].filters == ("deflate",)
    assert by_name["deep/x"].attributes == {"unit": "m"}
    assert 0 < by_name["deep/x"].stored_bytes < 1200
    assert {name: dataset.dtype for name, dataset in by_name.items()} == {
        "deep/x": ">i2",
        "null": "float32",
        "ragged": "variable-length int32",
        "rows": "{id: int64, tag: str of 3 bytes, v: float32[2]}",
        "text": "str",
        "virtual": "float32",
    }
    assert by_name["null"].shape is None
    assert [name for name, dataset in by_name.items() if dataset.virtual] == ["virtual"]
    assert found.worker is None
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["kind"] == "hdf5"


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "b.txt").write_text("hello")
    (tmp_path / "dangling").symlink_to("gone")
    with Writer(tmp_path / "a") as writer:
        writer.write(b"hello")
    found = info(tmp_path)
    assert isinstance(found, FolderInfo)
    assert [(entry.name, entry.described, entry.file_bytes) for entry in found.files] == [
        ("a", "a TFRecord file", 21),
        ("b.txt", "plain text that begins 'hello'", 5),
        ("dangling", "a broken link", 0),
        ("inner", "a folder", 0),
    ]
    assert found.workers == ()


def test_run_folder(tmp_path: Path) -> None:
    for rank in range(2):
        with WorkerFile(tmp_path, World(rank=rank, size=2)) as out:
            for step in (10, 20 + rank):
                out.append("loss", [0.5] * (rank + 1))
                out.commit(step=step)
    WorkerFile(tmp_path, World(rank=2, size=3)).close()
    found = info(tmp_path)
    assert isinstance(found, FolderInfo)
    ranks = [(worker.rank, worker.world_size, worker.committed_step, worker.rows) for worker in found.workers]
    assert ranks == [(0, 2, 20, {"loss": 2}), (1, 2, 21, {"loss": 4})]
    assert [worker.commits for worker in found.workers] == [2, 2]

    one = info(next((tmp_path / "rank-00001").glob("*step-21.h5")))
    assert isinstance(one, HDF5Info)
    assert one.worker is not None
    assert (one.worker.rank, one.worker.committed_step, one.worker.rows) == (1, 21, {"loss": 2})
    assert [dataset.name for dataset in one.datasets] == ["loss"]


def test_what_is_neither(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        info(tmp_path / "a")
    (tmp_path / "a").write_text("hello")
    with pytest.raises(FormatError, match="found plain text"):
        info(tmp_path / "a")


def test_damage_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[:432] + bytes(1024) + GOOD[1456:])
    found = info(path, on_corrupt="skip")
    assert isinstance(found, TFRecordInfo)
    assert found.records == 5
    assert [(one.record, one.bytes) for one in found.damaged] == [(2, 1080)]
    assert found.to_dict()["damaged"][0]["offset_bytes"] == 432
