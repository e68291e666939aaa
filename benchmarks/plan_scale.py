"""Costs of plans, receipts and audits, from a small training to a very large one.

The largest training has a million shards with 10^10 records and 16,384 ranks. Plans are computed from the
numbers of records to the part of every rank in a step. Then an epoch is simulated: ranks are killed between
checkpoints, and another number of ranks resumes from the last one. Every rank leaves a receipt at each
checkpoint. The audit must prove the epoch; its memory does not include that of the receipts. A worker file
then commits rows with one of the receipts.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shardkeep.hdf5 import WorkerFile
from shardkeep.plan import Dataset, EpochPlan, Receipt, Segment, ShardTable, audit, epoch_order
from shardkeep.plan.file_assignment import FileSet, HistoryEntry, merge_history
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.proof.description import DescribedReceipt, describe, for_receipt
from shardkeep.world import World

__all__ = ["SCALES", "Scale", "audits", "plans", "simulated"]

Fault = Literal["no receipt", "a step behind", "an older checkpoint"]
_CYCLE_LENGTH = 16
_RECORD_BYTES = 700


@dataclass(frozen=True)
class Scale:
    """Size of a training."""

    shards: int
    records: int
    ranks: int
    batch_size: int = 64

    def counts(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return uneven numbers of records with a given sum."""
        rng = np.random.default_rng(0)
        edges = np.sort(rng.integers(0, self.records + 1, self.shards - 1))
        even = np.arange(1, self.shards) * (self.records // self.shards)
        # The mean of even and random cuts gives shards of 0 to a few times the mean.
        return np.diff(np.concatenate([[0], np.sort((edges + even) // 2), [self.records]]))


SCALES = (
    Scale(1_000, 10**7, 64),
    Scale(20_000, 10**8, 1_024),
    Scale(100_000, 10**9, 4_096),
    Scale(1_000_000, 10**10, 16_384),
)


def _plan_by_records(scale: Scale, counts: Any) -> int:
    """Plan an epoch; return how many records the ranks have together in some steps."""
    table = ShardTable(counts)
    plan = EpochPlan(table.total, 0, scale.ranks, scale.batch_size, "mask")
    order = epoch_order(table.total, shuffle="global", seed=1)
    rows = 0
    for step in (0, plan.steps // 2, plan.steps - 1):
        starts, stops = plan.step_spans(step)
        rows += int((stops - starts).sum())
        table.locate(order.records_at(np.arange(starts[-1], stops[-1])))
    return rows


def _plan_by_files(scale: Scale, counts: Any) -> int:
    """Assign whole shards to the ranks; return how many records the last rank has in some steps."""
    table = ShardTable(counts)
    files = FileSet(table, counts * _RECORD_BYTES, shuffled=True)
    plan = FilePlan(files, scale.ranks, scale.batch_size, _CYCLE_LENGTH, "mask")
    return sum(plan.reads_between(step, step + 1, scale.ranks - 1)[0].size for step in (0, plan.steps // 2))


def plans(scale: Scale) -> dict[str, float]:
    """Return the costs of plans, and of what a run stores of its data, in seconds, bytes and MiB."""
    receipt = replace(_receipt(scale), segments=(Segment(0, 0, 10),))
    return _measured(scale, "plan by records", "plan by files") | _commits(receipt)


def audits(scale: Scale) -> dict[str, float]:
    """Return the costs of audits, in seconds and MiB."""
    return _measured(scale, "audit by records", "audit by files")


def _measured(scale: Scale, *names: str) -> dict[str, float]:
    found = {}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in names:
            seconds, more = pool.apply(_timed, (name, scale))
            found |= {f"{name}, s": seconds, f"{name}, MiB": more / 2**20}
    return found


def _timed(name: str, scale: Scale) -> tuple[float, int]:
    """Return the seconds of a work, and the bytes that it adds to the memory of the process."""
    prepare, work = _WORK[name]
    prepared = prepare(scale)
    # Without what the preparation freed; VmHWM restarts at VmRSS.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, clock = _memory("VmRSS"), time.perf_counter()
    work(scale, prepared)
    return time.perf_counter() - clock, max(_memory("VmHWM") - before, 0)


def _memory(kind: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition(f"{kind}:")[2].split()[0]) * 1024


def simulated(
    scale: Scale, *, by_files: bool = False, epochs: int = 2, seed: int = 0, fault: Fault | None = None
) -> tuple[list[Receipt], int]:
    """Return the receipts of a training that is killed and resized at random, and the number of kills.

    Parameters
    ----------
    scale : Scale
    by_files : bool
        True if ranks read whole shards.
    epochs, seed : int
    fault : str, optional
        Fault that occurs once, in the middle: a receipt is lost, a rank's receipt is a step older than the
        checkpoint, or a run resumes from an older checkpoint than its receipts.
    """
    rng = np.random.default_rng(seed)
    blank = _receipt(scale, by_files=by_files)
    receipts: list[Receipt] = []
    place, runs, files = Segment(0, 0, 0), 0, blank.files()
    while place.epoch < epochs:
        world_size = int(rng.integers(max(scale.ranks // 2, 1), scale.ranks + 1))
        here = replace(blank, world_size=world_size)
        # Steps from the last checkpoint to the kill, possibly into the next epoch.
        wanted = int(rng.integers(2, max(scale.records // (world_size * scale.batch_size) // 6, 3)))
        segments, following = _run(here, place, wanted, epochs, files)
        of_ranks = [replace(here, id=_id(rng), rank=rank, segments=segments) for rank in range(world_size)]
        if runs == 2 and fault is not None:
            one = int(rng.integers(world_size))
            if fault == "no receipt":
                del of_ranks[one]
            elif fault == "a step behind":
                *finished, last = segments
                behind = (*finished, replace(last, steps=last.steps - 1))
                of_ranks[one] = replace(of_ranks[one], segments=behind)
            else:
                _, following = _run(here, place, wanted - 1, epochs, files)
        receipts += of_ranks
        place, runs = following, runs + 1
    return receipts, runs


def _receipt(scale: Scale, *, by_files: bool = False) -> Receipt:
    """Return the receipt of a rank before its first step."""
    counts = scale.counts()
    shards = tuple(f"train-{i:07d}-of-{scale.shards:07d}.tfrecord" for i in range(scale.shards))
    sizes = tuple((counts * _RECORD_BYTES).tolist())
    return Receipt(
        id="0" * 32,
        rank=0,
        world_size=1,
        batch_size=scale.batch_size,
        remainder="mask",
        dataset=Dataset("f" * 32, scale.records, shards, tuple(counts.tolist()), sizes),
        shuffle="blocks" if by_files else "global",
        seed=1,
        cycle_length=_CYCLE_LENGTH if by_files else None,
    )


def _run(
    here: Receipt, place: Segment, wanted: int, epochs: int, files: FileSet | None
) -> tuple[tuple[Segment, ...], Segment]:
    """Return what every rank delivers in `wanted` steps, and the position at which the next run resumes."""
    segments = []
    while wanted and place.epoch < epochs:
        plan = here.plan(place, "mask", files)
        steps = min(wanted, plan.steps)
        segments.append(replace(place, steps=steps))
        wanted -= steps
        history = place.history
        if here.cycle_length is not None:
            history = merge_history(
                [*history, HistoryEntry(here.world_size, here.batch_size, here.cycle_length, steps)]
            )
        if steps == plan.steps:
            place = Segment(place.epoch + 1, 0, 0)
        else:
            place = Segment(place.epoch, plan.position_after(steps), 0, history)
    return tuple(segments), place


def _id(rng: np.random.Generator) -> str:
    return rng.bytes(16).hex()


def _commits(receipt: Receipt) -> dict[str, float]:
    """Return the bytes of a receipt and of its description, and the seconds of commits with the receipt."""
    dataset, seconds = receipt.dataset, []
    told = replace(receipt, dataset=for_receipt(dataset)).to_dict()
    with tempfile.TemporaryDirectory() as folder, WorkerFile(folder, World(0, 1)) as out:
        for step in range(40):
            out.append("loss", np.zeros(64, "f4"))
            clock = time.perf_counter()
            out.commit(step=step, receipt=DescribedReceipt(told, lambda: dataset))
            seconds.append(time.perf_counter() - clock)
    return {
        "receipt, bytes": len(json.dumps(told)),
        "description of the data, bytes": len(json.dumps(describe(dataset))),
        "first commit, s": seconds[0],
        "another commit, s": statistics.median(seconds[1:]),
    }


def _proved(scale: Scale, receipts: list[Receipt]) -> None:
    report = audit(receipts, epochs=[0])
    assert report.ok, report


_WORK: dict[str, tuple[Callable[[Scale], Any], Callable[[Scale, Any], object]]] = {
    "plan by records": (Scale.counts, _plan_by_records),
    "plan by files": (Scale.counts, _plan_by_files),
    "audit by records": (lambda scale: simulated(scale, epochs=1)[0], _proved),
    "audit by files": (lambda scale: simulated(scale, epochs=1, by_files=True)[0], _proved),
}
