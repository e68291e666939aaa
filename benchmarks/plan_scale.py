"""Measurement of plans, receipts and audits from a small training to a very large one.

``python -m benchmarks.plan_scale [--quick] [SHARDS,RECORDS,RANKS …]``

The largest training has a million shards with 10^10 records and 16,384 ranks. Each plan is computed and timed
in a new process, from the numbers of records to the part of every rank in a step; the peak of memory is that
of the process. Then whole epochs are simulated: ranks are killed between checkpoints, and another number of
ranks resumes from the last one. Every rank leaves a receipt at each checkpoint. The audit must prove the
epochs, and name an injected fault; its memory does not include that of the receipts. A worker file then
commits rows with one of the receipts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shardkeep.hdf5 import WorkerFile
from shardkeep.plan import Dataset, EpochPlan, Receipt, Segment, ShardTable, audit, epoch_order
from shardkeep.plan.file_assignment import FileSet, HistoryEntry, merge_history
from shardkeep.plan.file_plan import FilePlan
from shardkeep.plan.proof.description import DescribedReceipt, describe, for_receipt
from shardkeep.plan.proof.report import AuditReport
from shardkeep.world import World

__all__ = ["FAULTS", "Scale", "committed", "measured", "plan_by_files", "plan_by_records", "simulated"]

Fault = Literal["no receipt", "a step behind", "an older checkpoint"]
FAULTS: tuple[Fault, ...] = ("no receipt", "a step behind", "an older checkpoint")
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


_SCALES = [
    Scale(1_000, 10**7, 64),
    Scale(20_000, 10**8, 1_024),
    Scale(100_000, 10**9, 4_096),
    Scale(1_000_000, 10**10, 16_384),
]
_SMALL = Scale(2_000, 10**6, 64, 16)


def plan_by_records(scale: Scale, counts: Any) -> int:
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


def plan_by_files(scale: Scale, counts: Any) -> int:
    """Assign whole shards to the ranks; return how many records the last rank has in some steps."""
    table = ShardTable(counts)
    files = FileSet(table, counts * _RECORD_BYTES, shuffled=True)
    plan = FilePlan(files, scale.ranks, scale.batch_size, _CYCLE_LENGTH, "mask")
    return sum(plan.reads_between(step, step + 1, scale.ranks - 1)[0].size for step in (0, plan.steps // 2))


def measured(work: Any, scale: Scale) -> tuple[float, float, int]:
    """Return wall time, processor time and peak memory of a process that runs `work`."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=_tell, args=(work, scale, sender))
    child.start()
    told: tuple[float, float, int] = receiver.recv()
    child.join()
    return told


def _tell(work: Any, scale: Scale, sender: Any) -> None:
    counts = scale.counts()
    clock, processor = time.perf_counter(), time.process_time()
    work(scale, counts)
    seconds, busy = time.perf_counter() - clock, time.process_time() - processor
    sender.send((seconds, busy, _memory("VmHWM")))


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
    counts = scale.counts()
    shards = tuple(f"train-{i:07d}-of-{scale.shards:07d}.tfrecord" for i in range(scale.shards))
    sizes = tuple((counts * _RECORD_BYTES).tolist())
    dataset = Dataset("f" * 32, scale.records, shards, tuple(counts.tolist()), sizes)
    blank = Receipt(
        id="0" * 32,
        rank=0,
        world_size=1,
        batch_size=scale.batch_size,
        remainder="mask",
        dataset=dataset,
        shuffle="blocks" if by_files else "global",
        seed=1,
        cycle_length=_CYCLE_LENGTH if by_files else None,
    )
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


def committed(receipt: Receipt) -> str:
    """Return the sizes of a receipt and its description, and the times of commits with the receipt."""
    dataset, seconds = receipt.dataset, []
    told = replace(receipt, dataset=for_receipt(dataset)).to_dict()
    with tempfile.TemporaryDirectory() as folder, WorkerFile(folder, World(0, 1)) as out:
        for step in range(40):
            out.append("loss", np.zeros(64, "f4"))
            clock = time.perf_counter()
            out.commit(step=step, receipt=DescribedReceipt(told, lambda: dataset))
            seconds.append(time.perf_counter() - clock)
    size, described = len(json.dumps(told)), len(json.dumps(describe(dataset)))
    first, median = (1e3 * s for s in (seconds[0], statistics.median(seconds[1:])))
    return (
        f"receipt {size} bytes, description {described:,}; first commit {first:.1f} ms, median {median:.1f}"
    )


def _audited(receipts: list[Receipt]) -> tuple[AuditReport, str]:
    # Without what the simulation freed; VmHWM restarts at VmRSS.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, clock = _memory("VmRSS"), time.perf_counter()
    report = audit(receipts, epochs=[0])
    seconds, more = time.perf_counter() - clock, _memory("VmHWM") - before
    return report, f"{len(receipts):,} receipts, {seconds:.2f} s, {more / 2**20:.0f} MiB"


def _print_costs(scale: Scale) -> bool:
    """Print the costs of a training; return True if an audit was wrong."""
    print(f"{scale.records:,} records in {scale.shards:,} shards, {scale.ranks:,} ranks", flush=True)
    for work in (plan_by_records, plan_by_files):
        seconds, busy, peak = measured(work, scale)
        told = f"{seconds:.2f} s ({busy:.2f} s of processor), {peak / 2**20:.0f} MiB"
        print(f"    {work.__name__}: {told}", flush=True)
    wrong = False
    for by_files in (False, True):
        # Histories of whole files are replayed from run to run, which takes longer, so one fault.
        for fault in (None, *FAULTS[: 1 if by_files else None]):
            receipts, runs = simulated(scale, epochs=1, by_files=by_files, fault=fault)
            report, told = _audited(receipts)
            how = "by files" if by_files else "by records"
            print(f"    audit {how}, {fault or 'no fault'}: {runs} runs, {told}", flush=True)
            problems = [*(text for epoch in report.epochs for text in epoch.problems), *report.problems]
            print("".join(f"        {text:.150}\n" for text in problems), end="")
            wrong |= report.ok == (fault is not None)
    print(f"    {committed(receipts[0])}", flush=True)
    return wrong


def main() -> None:
    """Print the costs of each training; exit with 3 if a result is wrong."""
    parser = argparse.ArgumentParser(prog="benchmarks.plan_scale", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small training")
    parser.add_argument("scales", nargs="*", type=_scale, default=_SCALES, metavar="SHARDS,RECORDS,RANKS")
    arguments = parser.parse_args()
    wrong = [_print_costs(scale) for scale in ([_SMALL] if arguments.quick else arguments.scales)]
    sys.exit(3 if any(wrong) else 0)


def _scale(text: str) -> Scale:
    return Scale(*map(int, text.split(",")))


if __name__ == "__main__":
    main()
