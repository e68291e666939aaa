"""The Hugging Face adapter: the order of the loader, division among nodes, resume, and arrays.

Covers `shardkeep.adapters.huggingface`. DataLoader workers are in tests/frameworks/torch.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")
distributed = pytest.importorskip("datasets.distributed")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.huggingface import to_dataset, to_iterable_dataset  # noqa: E402
from tests.frameworks.exactly_once import RECORDS, bare, make_loader  # noqa: E402

FEATURES = {"x": sk.FixedLen(), "s": sk.FixedLen((), "bytes"), "v": sk.VarLen("float32")}


def order(paths: list[str], epochs: int = 1) -> list[list[int]]:
    return [[row for step in epoch for row in step] for epoch in bare(paths, epochs)]


def numbers(dataset: Any) -> list[int]:
    return [row["x"] for row in dataset]


@pytest.mark.parametrize("parts", [1, 8, 64])
def test_each_epoch_has_the_order_of_the_loader(paths: list[str], parts: int) -> None:
    loader = make_loader(paths)
    dataset = to_iterable_dataset(loader, parts=parts)
    mapped = dataset.map(lambda row: {"x": row["x"]})
    for number, expected in enumerate(order(paths, 2)):
        loader.set_epoch(number)
        assert numbers(dataset) == numbers(mapped) == expected
    assert loader.position == 0


def test_rows_have_their_values(paths: list[str]) -> None:
    loader = sk.Loader(paths, FEATURES, 16, sk.World(0, 1))
    for x, row in enumerate(to_iterable_dataset(loader, text=["s"])):
        assert row == {"x": x, "s": "s" * (x % 3), "v": [1.5] * (1 + x % 4)}
    assert x == RECORDS - 1


@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_nodes_together_deliver_every_record_once(paths: list[str], nodes: int) -> None:
    dataset = to_iterable_dataset(make_loader(paths), parts=8)
    delivered = [numbers(distributed.split_dataset_by_node(dataset, node, nodes)) for node in range(nodes)]
    assert sorted(row for one in delivered for row in one) == list(range(RECORDS))


def test_a_shuffle_of_the_dataset_keeps_every_record(paths: list[str]) -> None:
    dataset = to_iterable_dataset(make_loader(paths)).shuffle(seed=1, buffer_size=20)
    assert sorted(numbers(dataset)) == list(range(RECORDS))


@pytest.mark.parametrize("taken", [0, 1, 16, 17, 209, 210])
def test_a_run_resumes_after_any_row(paths: list[str], taken: int) -> None:
    dataset = to_iterable_dataset(make_loader(paths), parts=5)
    rows = iter(dataset)
    seen = [next(rows)["x"] for _ in range(taken)]
    state = json.loads(json.dumps(dataset.state_dict()))
    resumed = to_iterable_dataset(make_loader(paths), parts=5)
    resumed.load_state_dict(state)
    assert seen + numbers(resumed) == order(paths)[0]


def test_a_run_resumes_after_any_batch_of_arrays(paths: list[str]) -> None:
    def batches() -> Any:
        return to_iterable_dataset(make_loader(paths), parts=5).with_format("numpy")

    first, later = batches(), batches()
    rows = first.iter(batch_size=10)
    seen = [next(rows)["x"].tolist() for _ in range(4)]
    later.load_state_dict(first.state_dict())
    seen += [batch["x"].tolist() for batch in later.iter(batch_size=10)]
    assert [row for batch in seen for row in batch] == order(paths)[0]


def test_damaged_records_are_left_out(paths: list[str], tmp_path: Path) -> None:
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "a").write_bytes(content)
    dataset = to_iterable_dataset(make_loader([str(tmp_path / "a")], on_corrupt="skip"))
    assert len(numbers(dataset)) == 119


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    pillow = pytest.importorskip("PIL.Image")
    path = str(tmp_path_factory.mktemp("pictures") / "a.tfrecord")
    with sk.tfrecord.Writer(path) as w:
        for number in range(6):
            out = io.BytesIO()
            pillow.fromarray(np.full((4, 5, 3), number, np.uint8)).save(out, "PNG")
            w.write_example({"png": out.getvalue(), "m": np.arange(6) * number, "f": [0.5] * 4})
    return path


def test_images_and_matrices_are_arrays(pictures: str) -> None:
    features = {"png": sk.Image(3, "uint8"), "m": sk.FixedLen((2, 3)), "f": sk.FixedLen((2, 2), "float32")}
    loader = sk.Loader(pictures, features, 4, sk.World(0, 1))
    for dataset in (to_dataset(pictures, features), to_iterable_dataset(loader)):
        assert dataset.features["png"] == datasets.Array3D((4, 5, 3), "uint8")
        assert dataset.features["m"] == datasets.Array2D((2, 3), "int64")
        assert dataset.features["f"] == datasets.Array2D((2, 2), "float32")
        for number, row in enumerate(dataset.with_format("numpy")):
            np.testing.assert_array_equal(row["f"], np.full((2, 2), 0.5))
            np.testing.assert_array_equal(row["png"], np.full((4, 5, 3), number))
            np.testing.assert_array_equal(row["m"], np.arange(6).reshape(2, 3) * number)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    with sk.tfrecord.Writer(tmp_path / "a") as w:
        for shape in ((4, 5, 3), (5, 4, 3)):
            out = io.BytesIO()
            pillow.fromarray(np.zeros(shape, np.uint8)).save(out, "PNG")
            w.write_example({"png": out.getvalue()})
    dataset = to_iterable_dataset(sk.Loader(w.path, {"png": sk.Image(3, "uint8")}, 1, sk.World(0, 1)))
    with pytest.raises(sk.SchemaError, match="another size"):
        list(dataset)


def test_encoded_images_are_images_of_datasets(pictures: str) -> None:
    features = {"png": sk.FixedLen((), "bytes")}
    loader = sk.Loader(pictures, features, 4, sk.World(0, 1))
    for dataset in (to_dataset(pictures, features), to_iterable_dataset(loader)):
        for number, row in enumerate(dataset.cast_column("png", datasets.Image())):
            np.testing.assert_array_equal(np.asarray(row["png"]), np.full((4, 5, 3), number))


def test_a_loader_that_would_be_divided_twice_is_refused(paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match=r"World\(0, 1\)"):
        to_iterable_dataset(make_loader(paths, 0, 2))
    with pytest.raises(sk.PlanError, match="no features"):
        to_iterable_dataset(sk.Loader(paths, world=sk.World(0, 1)))
    loader = make_loader(paths)
    next(iter(loader))
    with pytest.raises(sk.PlanError, match="mid-epoch"):
        to_iterable_dataset(loader)
    with pytest.raises(sk.PlanError, match="must be a shardkeep"):
        to_iterable_dataset(paths)  # type: ignore[arg-type]
