"""Receipts of run folders and merged files with their evidence, read in a thread; a page shows the newest.

The receipts are those that `shardkeep audit` reads, from the same commits and JSON files, but a child process
opens the segments, and no link out of the root is followed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from shardkeep.errors import ShardkeepError, UntrustedFileError
from shardkeep.hdf5.locking.holders import is_locked
from shardkeep.hdf5.segments.commit_record import CommitRecord
from shardkeep.hdf5.segments.described_data import data_path, is_data_path, with_description
from shardkeep.hdf5.segments.run_folder import list_ranks, writer_path
from shardkeep.hdf5.sources.receipts import receipts_of_rank
from shardkeep.jobs.audit import receipts_in_json
from shardkeep.plan.proof.audit import Evidence
from shardkeep.plan.proof.description import fingerprint_to_describe
from shardkeep.plan.proof.evidence import newest_of, read_receipts
from shardkeep.plan.proof.report import EpochAudit
from shardkeep.viewer.hdf5.processes import ask
from shardkeep.viewer.kept import Background, Recent
from shardkeep.viewer.locations import Location
from shardkeep.viewer.nearby import folder_of_shards
from shardkeep.viewer.runs.commit_records import record_at
from shardkeep.viewer.runs.deliveries import Deliveries

__all__ = ["RunEvidence", "RunReceipts", "recent_receipts"]

_WAIT_S = 0.12
_PAUSE_S = 2
_MOST_JSON_BYTES = 16 << 20


@dataclass(frozen=True)
class RunEvidence:
    """What the receipts of a run prove.

    Attributes
    ----------
    receipts : int
        Number of receipts that count.
    evidence : Evidence or None
        None if there is no receipt.
    epochs : dict of int to EpochAudit
    problems : list of str
        Faults that do not belong to a single epoch.
    data : Location or None
        Folder of the shards, if they are below a root of the page.
    writing : int
        Number of ranks that a process was writing.
    moment_s : float
        Time at which the receipts were read.
    pause_s : int
        Time after which a page that follows the run asks again.
    """

    receipts: int
    evidence: Evidence | None
    epochs: dict[int, EpochAudit]
    problems: list[str]
    data: Location | None
    writing: int
    moment_s: float
    pause_s: int
    _known: dict[int, Deliveries] = field(default_factory=dict, repr=False)

    def deliveries(self, epoch: int) -> Deliveries:
        """Return the deliveries of an epoch; they are computed once."""
        assert self.evidence is not None
        found = self._known.get(epoch)
        if found is None:
            found = Deliveries(self.evidence, epoch, is_written=self.writing > 0)
            self._known.clear()
            self._known[epoch] = found
        return found


class RunReceipts:
    """The receipts of one run folder, or of a merged file.

    Attributes
    ----------
    found : RunEvidence or None
        The newest result.
    error : str
        The reason why there is none; empty without an error.
    ranks, ranks_read : int
    """

    def __init__(self, location: Location) -> None:
        self.found: RunEvidence | None = None
        self.error = ""
        self.ranks = self.ranks_read = 0
        self._location = location
        self._receipts: list[dict[str, Any]] | None = None
        self._reading = Background()

    def update(self, roots: Sequence[Location]) -> bool:
        """Read the receipts again, for at most a fraction of a second; return whether all have been read."""
        return self._reading.run(partial(self._read, roots), _WAIT_S)

    def _read(self, roots: Sequence[Location]) -> None:
        try:
            self._find(roots)
            self.error = ""
        except (ShardkeepError, OSError) as error:
            self.found, self._receipts, self.error = None, None, str(error)

    def _find(self, roots: Sequence[Location]) -> None:
        moment_s, begin_s = time.time(), time.thread_time()
        writing, unread, receipts = self._collect()
        before = self.found
        if before is not None and receipts == self._receipts and bool(writing) == bool(before.writing):
            if before.evidence is not None and before.data is None:
                self.found = replace(before, data=self._data(before.evidence, roots))
            return
        read, described = read_receipts(receipts)
        newest, problems = newest_of(read)
        evidence = Evidence(newest, described) if newest else None
        epochs: dict[int, EpochAudit] = {}
        data = None
        if evidence is not None:
            epochs = {epoch: evidence.audit(epoch) for epoch in evidence.epochs}
            data = self._data(evidence, roots)
            problems += [*unread, *evidence.problems]
        self._receipts = receipts
        # A twentieth of a processor: an audit of thousands of epochs takes seconds.
        pause_s = max(_PAUSE_S, round(20 * (time.thread_time() - begin_s)))
        self.found = RunEvidence(len(newest), evidence, epochs, problems, data, writing, moment_s, pause_s)

    def _data(self, evidence: Evidence, roots: Sequence[Location]) -> Location | None:
        return folder_of_shards([self._location, *roots], evidence.shards.dataset)

    def _collect(self) -> tuple[int, list[str], list[dict[str, Any]]]:
        """Return the number of ranks that are being written, problems, and the receipts of all ranks."""
        receipts: list[dict[str, Any]] = []
        unread: list[str] = []
        run = self._location
        if not run.is_folder:
            return 0, [], ask(run, "/", "receipts")["receipts"]
        for name in sorted(os.listdir(run.path)):
            if name.endswith(".json") and not is_data_path(name):
                file = _inside(run.child(name))
                if os.path.getsize(file.path) <= _MOST_JSON_BYTES:
                    receipts += receipts_in_json(file.path, stray=True)
                else:
                    unread.append(
                        f"{file.name} is too long for this page: prove the run by `shardkeep audit`"
                    )
        folders = list_ranks(run.path)
        writing, self.ranks, self.ranks_read = 0, len(folders), 0
        for path in folders.values():
            rank = _inside(run.child(os.path.basename(path)))
            writing += is_locked(writer_path(path) + ".lock")

            def record(path: str, rank: Location = rank) -> CommitRecord | None:
                return record_at(rank.child(os.path.basename(path)))

            receipts += receipts_of_rank(path, record)
            self.ranks_read += 1
        return writing, unread, [self._described(receipt) for receipt in receipts]

    def _described(self, receipt: dict[str, Any]) -> dict[str, Any]:
        run, fingerprint = self._location, fingerprint_to_describe(receipt)
        if fingerprint is not None and is_data_path(name := data_path("", fingerprint)):
            _inside(run.child(name))
        return with_description(run.path, receipt)


def _inside(location: Location) -> Location:
    if location.leads_out:
        raise UntrustedFileError(f"{location.name} is a link to a file elsewhere: its receipts are not read")
    return location


recent_receipts = Recent(RunReceipts, 8)
