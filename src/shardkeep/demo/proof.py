"""The checks of a run, from what stands in its files.

The predictions prove exactly-once use a second time, without the receipts: every worker wrote the
name of each record beside what it predicted, and both came from the disk, not from a plan.
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

__all__ = ["Proof", "Results", "count_uses", "held_out_accuracy", "prove", "read_results"]

Rows = npt.NDArray[Any]

_NAMED = 3  # faults that the finding of a check spells out


@dataclass(frozen=True)
class Results:
    """The tables of a merged file, as structured arrays (see `worker`)."""

    predictions: Rows
    losses: Rows


@dataclass(frozen=True)
class Proof:
    """The checks, and the numbers they rest on."""

    checks: tuple[Check, ...]
    uses: tuple[EpochUse, ...]
    audit: dict[str, Any]


def read_results(path: str | os.PathLike[str]) -> Results:
    """Read both tables of a merged file."""
    with h5py.File(path, "r") as file:
        return Results(predictions=file["predictions"][()], losses=file["losses"][()])


def prove(layout: Layout, packed: Packed, epochs: int, results: Results) -> Proof:
    """Test that every record was used exactly once in every epoch, in two independent ways.

    Parameters
    ----------
    layout : Layout
        The receipts are taken from its ``results.h5``.
    packed : Packed
        What was there to be used.
    epochs : int
    results : Results
        The tables of the same ``results.h5``.
    """
    audit, audited = _audit(layout, epochs)
    uses = count_uses(results.predictions, packed.counts, epochs)
    faults = [
        f"epoch {use.epoch}: {use.missing:,} missing, {use.repeated:,} repeated" for use in uses if not use.ok
    ]
    strays = int((results.predictions["epoch"] >= epochs).sum() + (results.predictions["epoch"] < 0).sum())
    if strays:
        faults.append(f"{strays:,} rows of epochs that were not trained")
    good = f"in the predictions: each once in {_epochs(epochs)}"
    counted = Check("counted", not faults, "; ".join(faults) or good)
    return Proof((audited, counted, _labels_agree(results.predictions, packed)), uses, audit)


def count_uses(predictions: Rows, counts: tuple[int, ...], epochs: int) -> tuple[EpochUse, ...]:
    """Count how often each record of each epoch stands in a table of predictions.

    Parameters
    ----------
    predictions : structured ndarray
        With the fields ``epoch``, ``shard`` and ``index``. A row that names no existing record
        makes its epoch's count wrong, as a repeated one.
    counts : tuple of int
        Records of each shard.
    epochs : int
    """
    starts = np.concatenate([[0], np.cumsum(counts)])
    records = int(starts[-1])
    uses = []
    for epoch in range(epochs):
        rows = predictions[predictions["epoch"] == epoch]
        shard, index = rows["shard"].astype(np.int64), rows["index"]
        known = (shard >= 0) & (shard < len(counts)) & (index >= 0)
        known[known] = index[known] < np.asarray(counts)[shard[known]]
        times = np.bincount(starts[shard[known]] + index[known], minlength=records)
        uses.append(
            EpochUse(
                epoch=epoch,
                records=records,
                once=int((times == 1).sum()),
                missing=int((times == 0).sum()),
                repeated=int((times > 1).sum() + (~known).sum()),
            )
        )
    return tuple(uses)


def held_out_accuracy(layout: Layout, packed: Packed, settings: Settings) -> float:
    """Share of the held-out part that the model of the newest checkpoint names rightly."""
    model = Classifier(inputs=IMAGE_VALUES, hidden=settings.hidden, classes=CLASSES)
    model.parameters[:] = checkpoint.load(layout.checkpoint).parameters
    right = total = 0
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
        right += int((predicted == batch["label"][valid]).sum())
        total += int(valid.sum())
    return right / total if total else 0.0


def _audit(layout: Layout, epochs: int) -> tuple[dict[str, Any], Check]:
    try:
        report = jobs.audit([layout.results], epochs=range(epochs))
    except ShardkeepError as error:
        return {}, Check("audit", False, str(error))
    faults = [str(epoch) for epoch in report.epochs if not epoch.ok]
    faults += [problem for epoch in report.epochs for problem in epoch.problems]
    faults += report.problems
    good = f"from the receipts: each once in {_epochs(epochs)}"
    return report.to_dict(), Check("audit", report.ok, "; ".join(faults[:_NAMED]) or good)


def _labels_agree(predictions: Rows, packed: Packed) -> Check:
    """The label in a row must be the label that was packed under the row's shard and index."""
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
