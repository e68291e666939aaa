"""The Keras adapter in `fit`, `evaluate` and `predict`: the model counts its records, the audit judges.

Runs with the back end of KERAS_BACKEND. Covers `shardkeep.adapters.keras.backup`,
`shardkeep.adapters.keras.dataset`, `shardkeep.adapters.keras.logger`, `shardkeep.adapters.keras.passes` and
`shardkeep.adapters.keras.progress`.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.keras import (  # noqa: E402
    BackupAndRestore,
    LoaderProgress,
    PyDataset,
    WorkerFileLogger,
)
from tests.frameworks.exactly_once import COUNTS, RECORDS, bare, judge, make_loader  # noqa: E402
from tests.frameworks.keras.counting import Passes, counting_model, trained  # noqa: E402

# TensorFlow and torch of NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")

STEPS = -(-RECORDS // 16)


class Stop(keras.callbacks.Callback):
    """Raises, or stops the training, after a number of batches."""

    def __init__(self, after: int, error: bool = False) -> None:
        super().__init__()
        self.left, self.error = after, error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if not self.left:
            if self.error:
                raise RuntimeError("interrupted")
            self.model.stop_training = True


def fit(model: Any, data: Any, epochs: int, *callbacks: Any, **options: Any) -> list[list[int]]:
    """Train, and return the records of each epoch of Keras."""
    passes = Passes()
    options = {"shuffle": False, "verbose": 0, **options}
    model.fit(data, epochs=epochs, callbacks=[*callbacks, passes], **options)
    return passes.records


def test_batches_come_in_the_order_of_the_loader(paths: list[str]) -> None:
    data = PyDataset(make_loader(paths), "x", "x")
    expected = bare(paths, 1)[0]
    assert [x[w > 0].tolist() for x, _, w in data] == expected
    assert data[5][0][data[5][2] > 0].tolist() == expected[5]


def test_keras_may_shuffle_without_a_callback(paths: list[str]) -> None:
    passes = fit(counting_model(), PyDataset(make_loader(paths), "x", "x"), 2, shuffle=True)
    assert passes == [list(range(RECORDS))] * 2


def test_workers_are_refused(paths: list[str]) -> None:
    data = PyDataset(make_loader(paths), "x", "x")
    with pytest.raises(AttributeError):
        data.workers = 2
    with pytest.raises(TypeError):
        PyDataset(make_loader(paths), "x", workers=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("error", [False, True])
def test_a_second_fit_continues_where_the_first_was_left(paths: list[str], error: bool) -> None:
    loader = make_loader(paths)
    data, model = PyDataset(loader, "x", "x"), counting_model()
    try:
        fit(model, data, 1, LoaderProgress(data), Stop(3, error))
    except RuntimeError:
        assert error
    assert loader.position == 48
    fit(model, data, 2, LoaderProgress(data))
    assert trained(model) == [2] * RECORDS
    assert sk.plan.audit([loader.receipt()]).ok


def test_skipped_damage_is_in_the_receipt_and_has_no_weight(paths: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tfrecord"
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    loader = make_loader([str(damaged)], on_corrupt="skip")
    data = PyDataset(loader, "x", "x")
    assert len(fit(counting_model(), data, 1, LoaderProgress(data))[0]) == COUNTS[3] - 1
    assert len(loader.receipt()["skipped"]) == 1


def test_validation_delivers_every_record_and_moves_no_loader(paths: list[str]) -> None:
    loader, held = make_loader(paths), make_loader(paths)
    data, validation = PyDataset(loader, "x", "x"), PyDataset(held, "x", "x")
    model = counting_model()
    history = model.fit(
        data,
        epochs=2,
        validation_data=validation,
        callbacks=[LoaderProgress(data)],
        shuffle=False,
        verbose=0,
    ).history
    assert history["val_count"] == [RECORDS, RECORDS]
    assert trained(model) == [2] * RECORDS
    assert (held.epoch, held.position) == (0, 0)
    assert sk.plan.audit([loader.receipt()]).ok


def test_evaluate_and_predict_move_the_loader(paths: list[str]) -> None:
    loader = make_loader(paths)
    data, model = PyDataset(loader, "x", "x"), counting_model()
    callbacks = [LoaderProgress(data)]
    assert model.evaluate(data, callbacks=callbacks, verbose=0, return_dict=True)["count"] == RECORDS
    assert len(model.predict(data, callbacks=callbacks, verbose=0)) == STEPS * 16
    assert loader.epoch == 2
    assert sk.plan.audit([loader.receipt()]).ok


def test_predict_takes_batches_without_targets(paths: list[str]) -> None:
    model = counting_model()
    for remainder in ("mask", "short"):
        data = PyDataset(make_loader(paths, remainder=remainder), "x")
        assert len(model.predict(data, verbose=0)) == (RECORDS if remainder == "short" else STEPS * 16)


def test_padding_is_not_trained_on_without_targets(paths: list[str]) -> None:
    data = PyDataset(make_loader(paths), "x")
    with pytest.raises(sk.PlanError, match="padding"):
        LoaderProgress(data).on_train_begin()


def test_several_inputs_are_a_dict_of_their_names(paths: list[str]) -> None:
    features = {"x": sk.FixedLen(), "z": sk.FixedLen(default=3)}
    data = PyDataset(sk.Loader(paths, features, 16, sk.World(0, 1)), ("x", "z"), "x", sample_weight="z")
    x, y, weights = data[0]
    assert sorted(x) == ["x", "z"]
    assert weights.tolist() == [3.0] * 16
    assert len(y) == 16


@pytest.mark.parametrize(
    ("column", "problem"), [("v", "VarLen"), ("s", "bytes"), ("y", "the features of the loader are x, v, s")]
)
def test_columns_that_a_model_cannot_take_are_refused(paths: list[str], column: str, problem: str) -> None:
    features = {"x": sk.FixedLen(), "v": sk.VarLen("float32"), "s": sk.FixedLen(dtype="bytes")}
    loader = sk.Loader(paths, features, 16, sk.World(0, 1))
    with pytest.raises(sk.SchemaError, match=problem):
        PyDataset(loader, column)


@pytest.mark.parametrize("save_freq", ["epoch", 4])
@pytest.mark.parametrize("after", [3, 14, 17, 25])
def test_an_interrupted_fit_resumes_from_its_backup(
    paths: list[str], tmp_path: Path, save_freq: Any, after: int
) -> None:
    def run(*more: Any) -> tuple[Any, Any, BackupAndRestore]:
        loader = make_loader(paths)
        data, model = PyDataset(loader, "x", "x"), counting_model(built=True)
        backup = BackupAndRestore(data, tmp_path / "backup", save_freq)
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
            # In the order that needs the agreement of the two.
            fit(model, data, 3, backup, WorkerFileLogger(data, out), *more)
        return model, loader, backup

    with pytest.raises(RuntimeError, match="interrupted"):
        run(Stop(after, error=True))
    model, loader, backup = run()
    assert trained(model) == [3] * RECORDS
    assert loader.epoch == 3
    assert sk.plan.audit(backup.receipts()).ok
    sk.hdf5.merge(tmp_path / "run", tmp_path / "merged.h5")
    with sk.hdf5.open(tmp_path / "merged.h5") as merged:
        assert merged["logs/epoch"][:].tolist() == [0, 1, 2]
    assert sk.plan.audit(sk.hdf5.receipts(tmp_path / "merged.h5")).ok
    assert not (tmp_path / "backup").exists()


def test_a_backup_is_a_weights_file_of_keras(paths: list[str], tmp_path: Path) -> None:
    data, model = PyDataset(make_loader(paths), "x", "x"), counting_model(built=True)
    fit(model, data, 1, BackupAndRestore(data, tmp_path, delete_checkpoint=False))
    assert [file.name for file in tmp_path.iterdir()] == ["latest.weights.h5"]
    plain = counting_model(built=True)
    plain.load_weights(tmp_path / "latest.weights.h5")
    assert trained(plain) == [1] * RECORDS
    with pytest.raises(sk.errors.CorruptDataError, match="no state of a loader"):
        model.save_weights(tmp_path / "latest.weights.h5", overwrite=True)
        fit(model, data, 1, BackupAndRestore(data, tmp_path))


def test_a_backup_is_refused_for_an_unbuilt_model_and_several_ranks(paths: list[str], tmp_path: Path) -> None:
    with pytest.raises(sk.PlanError, match="for one process"):
        BackupAndRestore(PyDataset(make_loader(paths, 0, 2), "x", "x"), tmp_path)
    with pytest.raises(sk.PlanError, match="save_freq"):
        BackupAndRestore(PyDataset(make_loader(paths), "x", "x"), tmp_path, 0)
    if keras.backend.backend() == "tensorflow":  # The others build the model from the first batch.
        data = PyDataset(make_loader(paths), "x", "x")
        with pytest.raises(sk.PlanError, match="not built"):
            fit(counting_model(), data, 1, BackupAndRestore(data, tmp_path))


def test_logs_that_begin_later_are_filled(paths: list[str], tmp_path: Path) -> None:
    data = PyDataset(make_loader(paths), "x", "x")
    validation = PyDataset(make_loader(paths), "x", "x")
    with sk.hdf5.WorkerFile(tmp_path, sk.World(0, 1)) as out:
        logger = WorkerFileLogger(data, out)
        fit(counting_model(), data, 3, logger, validation_data=validation, validation_freq=2)
        assert out.committed_rows["logs/val_count"] == out.committed_rows["logs/epoch"] == 3
        assert out.committed_state == data.loader.state_dict()
    sk.hdf5.merge(tmp_path, tmp_path / "merged.h5")
    with sk.hdf5.open(tmp_path / "merged.h5") as merged:
        assert np.isnan(merged["logs/val_count"][:]).tolist() == [True, False, True]
        assert merged["logs/count"][:].tolist() == [RECORDS] * 3


@pytest.mark.parametrize("steps", [1] if keras.backend.backend() == "torch" else [1, 4])
def test_predictions_have_a_row_for_each_record(paths: list[str], tmp_path: Path, steps: int) -> None:
    model = counting_model(built=True, steps_per_execution=steps)
    model.layers[0].set_weights([np.arange(RECORDS, dtype=np.float32)[:, None]])
    for rank in range(2):
        loader = make_loader(paths, rank, 2, with_ids=True)
        data = PyDataset(loader, "x")
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(rank, 2)) as out:
            model.predict(data, verbose=0, callbacks=[WorkerFileLogger(data, out, commit_freq=3)])
    sk.hdf5.merge(tmp_path / "run", tmp_path / "merged.h5")
    with sk.hdf5.open(tmp_path / "merged.h5") as merged:
        predictions, shard, index = (merged[name][:] for name in ("predictions", "shard", "index"))
    assert (predictions == np.cumsum([0, *COUNTS])[shard] + index).all()
    judge([predictions.astype(int).tolist()], sk.hdf5.receipts(tmp_path / "merged.h5"))


def test_an_interrupted_predict_continues_from_the_committed_state(paths: list[str], tmp_path: Path) -> None:
    class Interrupt(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 8:
                raise RuntimeError

    for interrupts in ([Interrupt()], []):
        model = counting_model(built=True)
        model.layers[0].set_weights([np.arange(RECORDS, dtype=np.float32)[:, None]])
        loader = make_loader(paths)
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
            if out.committed_state:
                loader.load_state_dict(out.committed_state)
            data = PyDataset(loader, "x")
            try:
                model.predict(data, verbose=0, callbacks=[WorkerFileLogger(data, out, 3), *interrupts])
            except RuntimeError:
                assert interrupts
                out.rollback(step=out.committed_step)
    sk.hdf5.merge(tmp_path / "run", tmp_path / "merged.h5")
    with sk.hdf5.open(tmp_path / "merged.h5") as merged:
        judge([merged["predictions"][:].astype(int).tolist()], sk.hdf5.receipts(tmp_path / "merged.h5"))


def test_a_file_of_other_rows_is_refused(paths: list[str], tmp_path: Path) -> None:
    data, model = PyDataset(make_loader(paths), "x", "x"), counting_model(built=True)
    with sk.hdf5.WorkerFile(tmp_path, sk.World(0, 1)) as out:
        fit(model, data, 1, WorkerFileLogger(data, out))
        committed = out.committed_rows
        with pytest.raises(sk.PlanError, match="predict needs a WorkerFile of another run"):
            model.predict(data, verbose=0, callbacks=[WorkerFileLogger(data, out)])
        other = PyDataset(make_loader(paths[:3]), "x", "x")
        with pytest.raises(sk.PlanError, match="another data set"):
            fit(model, other, 1, WorkerFileLogger(other, out))
        assert out.committed_rows == committed


def test_callbacks_take_a_dataset_of_a_loader(paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match="PyDataset"):
        LoaderProgress(make_loader(paths))
    with pytest.raises(sk.PlanError, match=r"shardkeep\.Loader"):
        PyDataset(copy.copy, "x")
