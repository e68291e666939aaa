"""Programs that cases start, and the runs that they write."""

from __future__ import annotations

from pathlib import Path

import shardkeep as sk
from tests.frameworks.consumers.stories import Answer
from tests.frameworks.exactly_once import RECORDS

PROGRAMS = "tests.frameworks.consumers.programs"
"""The package of the programs that cases start."""
EPOCHS = 2
"""Epochs of these programs."""


def merged_epochs(run: Path | str, folder: Path) -> Answer:
    """Merge a run into a file in the folder; return the rows of two epochs. The merge refuses findings.

    Ranks that are not in step have no order in it: each epoch has a record once if the file has it twice.
    """
    sk.merge(run, folder / "merged.h5")
    with sk.hdf5.open(folder / "merged.h5") as file:
        x = sorted(file["x"][:].tolist())
        assert "loss" not in file or file["loss"][:].sum() == 2 * sum(x)
    receipts = sk.hdf5.receipts(folder / "merged.h5")
    assert [epoch.delivered for epoch in sk.plan.audit(receipts).epochs] == [RECORDS] * EPOCHS
    return [x[::2], x[1::2]], receipts
