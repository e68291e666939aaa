"""Checks of a run, made from its files.

The predictions prove exactly-once use a second time, without the receipts: every worker wrote the shard and
index of each record with its prediction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep import jobs
from shardkeep.demo import checkpoint
from shardkeep.demo.data import CLASSES, FEATURES, IMAGE_VALUES, Packed
from shardkeep.demo.model import Classifier
from shardkeep.demo.report import Check, EpochUse
from shardkeep.demo.settings import Layout, Settings
from shardkeep.errors import ShardkeepError
from shardkeep.loader import Loader
from shardkeep.world import World

__all__ = ["Proof", "Results", "count_uses", "held_out_accuracy", "prove", "read_results", "times_used"]

Rows = npt.NDArray[Any]

_FAULTS_SHOWN = 3  # by the finding of a check


@dataclass(frozen=True)
class Results:
    """Tables of a merged file, as structured arrays (see `worker`)."""

    predictions: Rows
    losses: Rows


@dataclass(frozen=True)
class Proof:
    """Checks, and the numbers that they are based on."""

    checks: tuple[Check, ...]
    uses: tuple[EpochUse, ...]
    audit: dict[str, Any]


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read both tables of a merged file."""
    with h5py.File(path, "r") as file:
        return Results(predictions=file["predictions"][()], losses=file["losses"][()])


def prove(layout: Layout, packed: Packed, epochs: int, results: Results) -> Proof:
    """Check in two independent ways that every record was used exactly once in every epoch.

    Parameters
    ----------
    layout : Layout
        Layout of the folder; its ``results.h5`` has the receipts.
    packed : Packed
        The records of the training part.
    epochs : int
        Number of epochs that were trained.
    results : Results
        Tables of the same ``results.h5``.
    """
    audit, audited = _audit(layout, epochs)
    uses = count_uses(results.predictions, packed.counts, epochs)
    faults = [
        f"epoch {use.epoch}: {use.missing:,} missing, {use.repeated:,} repeated" for use in uses if not use.ok
    ]
    trained = results.predictions["epoch"]
    unexpected_rows = int(((trained < 0) | (trained >= epochs)).sum())
    if unexpected_rows:
        faults.append(f"{unexpected_rows:,} rows of epochs that were not trained")
    success = f"in the predictions: each once in {_epochs(epochs)}"
    counted = Check("counted", not faults, "; ".join(faults) or success)
    return Proof((audited, counted, _labels_agree(results.predictions, packed)), uses, audit)


def count_uses(predictions: Rows, counts: tuple[int, ...], epochs: int) -> tuple[EpochUse, ...]:
    """Count how often each record of each epoch is in a table of predictions.

    Parameters
    ----------
    predictions : structured ndarray
        Table with the fields ``epoch``, ``shard`` and ``index``. A row with a record that does not exist
        counts as repeated.
    counts : tuple of int
        Number of records of each shard.
    epochs : int
        Number of epochs that were trained.
    """
    uses = []
    for epoch in range(epochs):
        times, unknown = times_used(predictions[predictions["epoch"] == epoch], counts)
        uses.append(
            EpochUse(
                epoch=epoch,
                records=len(times),
                once=int((times == 1).sum()),
                missing=int((times == 0).sum()),
                repeated=int((times > 1).sum()) + unknown,
            )
        )
    return tuple(uses)


def times_used(rows: Rows, counts: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], int]:
    """Count the rows of each record.

    Parameters
    ----------
    rows : structured ndarray
        Table with the fields ``shard`` and ``index``.
    counts : tuple of int
        Number of records of each shard.

    Returns
    -------
    times : ndarray of int64, shape (records,)
        Number of rows of each record, shard after shard.
    unknown : int
        Number of rows with a record that does not exist.
    """
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    shard, index = rows["shard"].astype(np.int64), rows["index"]
    known = (shard >= 0) & (shard < len(counts)) & (index >= 0)
    known[known] = index[known] < np.asarray(counts)[shard[known]]
    times = np.bincount(starts[shard[known]] + index[known], minlength=int(starts[-1]))
    return times.astype(np.int64), int((~known).sum())


def held_out_accuracy(layout: Layout, packed: Packed, settings: Settings) -> float:
    """Return the accuracy of the newest checkpoint's model on the held-out part."""
    model = Classifier(inputs=IMAGE_VALUES, hidden=settings.hidden, classes=CLASSES)
    model.parameters = checkpoint.load(layout.checkpoint).parameters
    correct = total = 0
    loader = Loader(
        [str(path) for path in packed.held_out],
        features=FEATURES,
        batch_size=128,
        world=World(0, 1),
        remainder="mask",
        threads=1,
    )
    for batch in loader:
        valid = batch["valid"]
        predicted = model.probabilities(batch["image_raw"][valid]).argmax(axis=1)
        correct += int((predicted == batch["label"][valid]).sum())
        total += int(valid.sum())
    return correct / total if total else 0.0


def _audit(layout: Layout, epochs: int) -> tuple[dict[str, Any], Check]:
    try:
        report = jobs.audit([layout.results], epochs=range(epochs))
    except ShardkeepError as error:
        return {}, Check("audit", False, str(error))
    faults = [str(epoch) for epoch in report.epochs if not epoch.ok]
    faults += [problem for epoch in report.epochs for problem in epoch.problems]
    faults += report.problems
    success = f"from the receipts: each once in {_epochs(epochs)}"
    return report.to_dict(), Check("audit", report.ok, "; ".join(faults[:_FAULTS_SHOWN]) or success)


def _labels_agree(predictions: Rows, packed: Packed) -> Check:
    """Check that each row has the label that was packed for its shard and index."""
    wrong = 0
    for shard, labels in enumerate(packed.labels):
        rows = predictions[predictions["shard"] == shard]
        inside = (rows["index"] >= 0) & (rows["index"] < len(labels))
        wrong += int((~inside).sum())
        wrong += int((labels[rows["index"][inside]] != rows["label"][inside]).sum())
    return Check(
        "labels",
        wrong == 0,
        f"all {len(predictions):,} as packed" if not wrong else f"{wrong:,} rows differ from the shards",
    )


def _epochs(epochs: int) -> str:
    return "the one epoch" if epochs == 1 else f"all {epochs} epochs"
