"""Map-style datasets over TFRecord and HDF5 files, in real DataLoaders.

Covers `shardkeep.adapters.torch.map_style` and `shardkeep.adapters.torch.tensors`.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import h5py  # noqa: E402
import numpy as np  # noqa: E402

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.torch import H5Dataset, RecordDataset  # noqa: E402
from tests.frameworks.exactly_once import RECORDS  # noqa: E402

ROWS = 1000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hdf5") / "x.h5"
    with sk.hdf5.open(path, "w") as f:
        numbers = np.arange(ROWS)
        rows = numbers[:, np.newaxis] + np.zeros(8)
        f.create_dataset("x", data=rows.astype("float32"), chunks=(64, 8), compression="gzip")
        f["labels/y"] = numbers
        f["big"] = numbers.astype(">i4")
        f["text"] = [f"n{i}" for i in range(ROWS)]
        f["fixed"] = np.array([b"f%d" % i for i in range(ROWS)])
        ragged = f.create_dataset("ragged", ROWS, h5py.vlen_dtype("int32"))
        for i in range(5):
            ragged[i] = np.arange(i)
    return path


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_with_a_random_sampler_read_each_record_once(paths: list[str], method: str) -> None:
    dataset = RecordDataset(paths, {"x": sk.FixedLen()})
    assert dataset[3]["x"] == 3  # the index of the parent is in use
    batches = torch.utils.data.DataLoader(
        dataset, 16, shuffle=True, num_workers=2, multiprocessing_context=method
    )
    seen = [x for batch in batches for x in batch["x"].tolist()]
    assert seen != sorted(seen)
    assert sorted(seen) == list(range(RECORDS))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_every_row_of_a_file_that_was_opened_before(path: Path, method: str) -> None:
    dataset = H5Dataset(path, ["x", "labels/y"])
    assert dataset[3]["labels/y"] == 3  # the handle of the parent is in use
    batches = torch.utils.data.DataLoader(
        dataset, 64, shuffle=True, num_workers=2, multiprocessing_context=method
    )
    seen = []
    for batch in batches:
        assert (batch["x"] == batch["labels/y"][:, None]).all()
        seen += batch["labels/y"].tolist()
    assert sorted(seen) == list(range(ROWS))


def test_raw_records_are_bytes_in_the_order_asked_for(paths: list[str]) -> None:
    dataset = RecordDataset(paths)
    stored = [record for one in paths for record in sk.tfrecord.Reader(one)]
    wanted = [RECORDS - 1, 0, -1, 7, 6, 7]
    assert dataset.__getitems__(wanted) == [stored[i] for i in wanted]
    assert [dataset[i] for i in wanted] == [stored[i] for i in wanted]
    assert list(dataset) == stored


def test_features_are_tensors_and_byte_strings_stay(tmp_path: Path) -> None:
    with sk.tfrecord.Writer(tmp_path / "x") as w:
        w.write_example({"x": 5, "s": b"ss", "v": [1.5, 2.5], "many": [b"a", b"b"], "rows": [1, 2, 3, 4]})
    features: dict[str, Any] = {
        "x": sk.FixedLen(),
        "s": sk.FixedLen(dtype="bytes"),
        "v": sk.VarLen("float32"),
        "many": sk.VarLen("bytes"),
        "rows": sk.FixedLen((2, 2)),
    }
    item = RecordDataset(tmp_path / "x", features)[0]
    assert item["x"].shape == () and item["x"] == 5
    assert item["s"] == b"ss"
    assert item["v"].tolist() == [1.5, 2.5]
    assert item["many"] == [b"a", b"b"]
    assert item["rows"].tolist() == [[1, 2], [3, 4]]


def test_each_type_of_hdf5_has_its_item(path: Path) -> None:
    item = H5Dataset(path)[4]
    assert set(item) == {"x", "big", "text", "fixed", "ragged"}
    assert item["x"].dtype == torch.float32
    assert item["big"].dtype == torch.int32 and item["big"] == 4
    assert item["text"] == b"n4"
    assert item["fixed"] == b"f4"
    assert item["ragged"].tolist() == [0, 1, 2, 3]


def test_a_transform_makes_the_item(paths: list[str], path: Path) -> None:
    assert RecordDataset(paths, transform=len)[0] == len(next(iter(sk.tfrecord.Reader(paths[0]))))
    doubled = H5Dataset(path, "labels/y", transform=lambda row: row.pop("labels/y") * 2)
    assert [int(value) for value in doubled.__getitems__([4, 4])] == [8, 8]


def test_a_pickle_has_no_index(paths: list[str], path: Path) -> None:
    for dataset in (RecordDataset(paths, {"x": sk.FixedLen()}), H5Dataset(path, "x")):
        assert dataset[7]["x"].max() == 7
        assert len(pickle.dumps(dataset)) < 2000
        assert pickle.loads(pickle.dumps(dataset))[7]["x"].max() == 7


def test_numbers_beyond_the_end_are_index_errors(paths: list[str], path: Path) -> None:
    for dataset in (RecordDataset(paths), H5Dataset(path, "x")):
        for index in (len(dataset), -len(dataset) - 1):
            with pytest.raises(IndexError, match=f" {index} does not exist: there are {len(dataset)}"):
                dataset[index]


def test_numbers_of_numpy_and_tensors_are_indices(paths: list[str]) -> None:
    dataset: Any = RecordDataset(paths)
    assert dataset[np.int64(3)] == dataset[torch.tensor(3)] == dataset[3]


def test_a_virtual_file_without_its_source_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source.h5"
    with sk.hdf5.open(source, "w") as f:
        f["x"] = np.arange(4)
    layout = h5py.VirtualLayout((4,), "i8")
    layout[:] = h5py.VirtualSource(source, "x", (4,))
    with h5py.File(tmp_path / "v.h5", "w") as f:
        f.create_virtual_dataset("x", layout)
    assert H5Dataset(tmp_path / "v.h5")[2]["x"] == 2
    source.unlink()
    with pytest.raises(sk.ShardkeepError, match=r"source\.h5"):
        H5Dataset(tmp_path / "v.h5", "x")[2]
