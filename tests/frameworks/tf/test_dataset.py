"""Datasets of a loader: specs, checkpoints, damage, memory.

Covers `shardkeep.adapters.tensorflow.columns`, `shardkeep.adapters.tensorflow.dataset` and
`shardkeep.adapters.tensorflow.generator`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.tensorflow import to_dataset  # noqa: E402
from tests.frameworks.exactly_once import (  # noqa: E402
    bare,
    judge,
    make_loader,
    rows,
)

STEPS = 14


def of(batch: Any) -> list[int]:
    return rows({name: tensor.numpy() for name, tensor in batch.items()})


def flat(passes: list[list[list[int]]]) -> list[list[int]]:
    return [[row for batch in one for row in batch] for one in passes]


def test_the_specs_are_those_of_the_tensors(paths: list[str]) -> None:
    features = {"x": sk.FixedLen((1,)), "s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}
    for remainder in ("mask", "short", "drop"):
        loader = sk.Loader(paths, features, 8, sk.World(0, 1), remainder=remainder, with_ids=True)
        dataset = to_dataset(loader)
        rows_of = None if remainder == "short" else 8
        assert dataset.element_spec["x"] == tf.TensorSpec([rows_of, 1], tf.int64)
        assert dataset.element_spec["s"] == tf.TensorSpec([rows_of], tf.string)
        assert dataset.element_spec["v"] == tf.RaggedTensorSpec(
            [rows_of, None], tf.float32, row_splits_dtype=tf.int64
        )
        batch = next(iter(dataset))
        assert batch.keys() == dataset.element_spec.keys()
        tf.nest.assert_same_structure(batch, dataset.element_spec, expand_composites=True)
        assert batch["s"].numpy().tolist() == [b"s" * (i % 3) for i in range(8)]
        assert batch["v"].to_list() == [[1.5] * (1 + i % 4) for i in range(8)]
        assert batch["index"].numpy().tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


def test_raw_records_are_strings(paths: list[str]) -> None:
    batch = next(iter(to_dataset(sk.Loader(paths, None, 8, sk.World(0, 1)))))
    parsed = tf.io.parse_example(batch["record"], {"x": tf.io.FixedLenFeature([], tf.int64)})
    assert parsed["x"].numpy().tolist() == list(range(8))


@pytest.mark.parametrize(
    ("options", "steps"), [({}, STEPS), ({"epochs": 3}, 3 * STEPS), ({"epochs": None}, -1)]
)
def test_the_cardinality_is_that_of_a_pass(paths: list[str], options: dict[str, Any], steps: int) -> None:
    assert to_dataset(make_loader(paths, **options)).cardinality().numpy() == steps


def test_no_thread_tunes_it_for_which_the_end_of_an_iterator_would_wait(paths: list[str]) -> None:
    assert to_dataset(make_loader(paths)).options().autotune.enabled is False


def test_an_endless_loader_begins_its_current_epoch_again(paths: list[str]) -> None:
    dataset = to_dataset(make_loader(paths, epochs=None))
    list(dataset.take(2 * STEPS + 3))
    assert [of(batch) for batch in dataset.take(STEPS)] == bare(paths, 3)[2]


def test_a_checkpoint_restores_the_place(paths: list[str], tmp_path: Path) -> None:
    loader, later = make_loader(paths), make_loader(paths)
    dataset, resumed = to_dataset(loader), to_dataset(later)
    seen = [of(batch) for batch in dataset.take(5)]
    path = tf.train.Checkpoint(data=dataset).save(str(tmp_path / "state"))
    next(iter(resumed))
    tf.train.Checkpoint(data=resumed).restore(path).assert_consumed()
    for _ in range(2):  # to inspect the first batch moves nothing
        next(iter(resumed))
    seen += [of(batch) for batch in resumed]
    assert seen == bare(paths, 1)[0]
    judge(flat([seen]), [loader.receipt(), later.receipt()])
    assert [of(batch) for batch in resumed] == bare(paths, 2)[1]


def test_a_replaced_iterator_is_over(paths: list[str]) -> None:
    dataset = to_dataset(make_loader(paths))
    first = iter(dataset)
    next(first)
    next(iter(dataset))
    with pytest.raises(tf.errors.InvalidArgumentError, match="this iterator is over"):
        next(first)


def test_damage_that_is_skipped_is_in_the_receipt(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tfrecord"
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    for remainder in ("mask", "drop"):
        loader = make_loader([str(damaged)], on_corrupt="skip", remainder=remainder)
        for _ in to_dataset(loader):
            pass
        assert len(loader.receipt()["skipped"]) == 1
    with pytest.raises(tf.errors.OpError, match=r"CorruptRecordError.*damaged\.tfrecord"):
        list(to_dataset(make_loader([str(damaged)])))


@pytest.mark.parametrize("calls", [None, 2])
def test_a_batch_of_which_the_function_fails_was_not_used(paths: list[str], calls: int | None) -> None:
    loader, expected = make_loader(paths), bare(paths, 1)[0]

    def refused(batch: dict[str, Any]) -> Any:
        if batch["x"][0] == expected[2][0]:  # a condition that TensorFlow converts from Python
            return tf.gather(batch["x"], [16])
        return batch["x"]

    seen: list[list[int]] = []
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in"):
        for x in to_dataset(loader, refused, calls):
            seen.append(x.numpy().tolist())
    assert seen == expected[:2]
    assert loader.position == 32


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="faults are counted on Linux")
def test_large_batches_use_the_same_memory_again(tmp_path: Path) -> None:
    import resource

    with sk.tfrecord.Writer(tmp_path / "x.tfrecord") as w:
        for _ in range(400):
            w.write_example({"x": [1.0] * 5000})
    features = {"x": sk.FixedLen((5000,), "float32")}
    dataset = to_dataset(sk.Loader(w.path, features, 20, sk.World(0, 1), epochs=5))
    faults = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for batch in dataset:
            del batch
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    pages = 5 * 400 * 5000 * 4 // 4096
    assert faults[1] < pages / 2, (faults, pages)


def test_another_object_than_a_loader_is_refused() -> None:
    with pytest.raises(sk.PlanError, match=r"must be a shardkeep\.Loader, not list"):
        to_dataset([])  # type: ignore[arg-type]
