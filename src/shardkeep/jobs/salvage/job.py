"""The salvage of one path: by the salvager of its kind, or without one if there is nothing to salvage."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass

from shardkeep.errors import FormatError, MissingExtraError, ShardkeepError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.publish import Exists, publish_raw
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.segments.run_folder import writer_path
from shardkeep.jobs.salvage.collected import salvage_collected
from shardkeep.jobs.salvage.compressed import salvage_compressed
from shardkeep.jobs.salvage.file_copy import copy_into
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5
from shardkeep.jobs.salvage.live_writers import Locked
from shardkeep.jobs.salvage.records import salvage_records
from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart
from shardkeep.jobs.salvage.run import salvage_run
from shardkeep.jobs.verification.finding import Finding
from shardkeep.tfrecord.format.file_kind import is_compressed

__all__ = ["SalvageJob"]

# Findings about a path that holds nothing of what it should hold.
_NOTHING_THERE = {"empty", "replaced", "wrong-kind", "missing", "unreadable", "incomplete-set"}


@dataclass(frozen=True)
class SalvageJob:
    """A damaged file, folder of a run or set of shards, and its output.

    Attributes
    ----------
    path : str
    kind : str
        As of a `VerifiedFile`.
    size_bytes : int
    findings : tuple of Finding or None
        Result of its verification; None if it was not verified.
    output : str or None
    """

    path: str
    kind: str
    size_bytes: int
    findings: tuple[Finding, ...] | None = None
    output: str | None = None

    def locks(self) -> list[Locked]:
        """Return what no live process may be writing: the file, or the segments of a run."""
        if self.kind == "run":
            folders = glob.glob(os.path.join(glob.escape(self.path), "rank-*"))
            return [Locked(one, f"{writer_path(one)}.lock") for one in sorted(folders)]
        return [Locked(self.path)] if os.path.isfile(self.path) else []

    def run(self, exists: Exists, tick: Callable[[int], None]) -> RepairedFile:
        """Write all that can be kept to the output, if there is one.

        Raises
        ------
        ShardkeepError, OSError
            As of the salvagers.
        """
        kinds = None if self.findings is None else {finding.kind for finding in self.findings}
        if self.kind == "run":  # its findings are only about commits that are missing
            kinds = None
        if kinds is not None and kinds <= {"unsupported"}:
            return self._copied(exists, tick)
        if kinds is not None and kinds <= _NOTHING_THERE:
            return self._lost([finding.message for finding in self.findings or ()])
        return self._salvager()(self.path, self.output, exists=exists, tick=tick)

    def run_in_folder(self, exists: Exists, tick: Callable[[int], None]) -> RepairedFile:
        """Run as above, but report a file that cannot be read here as lost, since the others can be repaired.

        Raises
        ------
        ShardkeepError
            As of the salvagers, about the output or a process that changes the file.
        """
        try:
            return self.run(exists, tick)
        except (FormatError, MissingExtraError) as error:
            reason = str(error)
        except OSError as error:
            if isinstance(error, ShardkeepError):
                raise
            reason = f"{self.path} cannot be read: {error.strerror or error}"
        return self._lost([reason])

    def _salvager(self) -> Callable[..., RepairedFile]:
        if self.kind == "run":
            return salvage_run
        if self.kind == "tfrecord":
            return _salvage_any_records
        is_collected = self.kind == "collected" or os.path.lexists(log_path(self.path))
        return salvage_collected if is_collected else salvage_hdf5

    def is_intact(self, result: RepairedFile) -> bool:
        """Return True if the file turned out to have no damage, so that its output has the same bytes."""
        is_copy = self.findings == () or (self.findings is None and self.kind == "tfrecord")
        return is_copy and all(part.outcome == "kept" for part in result.parts)

    def _copied(self, exists: Exists, tick: Callable[[int], None]) -> RepairedFile:
        """Copy a file that has no damage, as far as its parts can be checked here."""
        if self.output is not None:
            with publish_raw(self.output, exists=exists) as file:
                copy_into(self.path, file, tick)
        parts = [RepairedPart("unchecked", one.message) for one in self.findings or ()]
        kept = RepairedPart("kept", "the whole file", offset_bytes=0, bytes=self.size_bytes)
        return RepairedFile(self.path, self.output, self.kind, self.size_bytes, tuple(parts) or (kept,))

    def _lost(self, reasons: list[str]) -> RepairedFile:
        parts = tuple(RepairedPart("lost", text, offset_bytes=0, bytes=self.size_bytes) for text in reasons)
        return RepairedFile(self.path, None, self.kind, self.size_bytes, parts)


def _salvage_any_records(
    path: str, output: str | None, *, exists: Exists, tick: Callable[[int], None]
) -> RepairedFile:
    """Salvage a file of records, compressed or not."""
    kind = identify(path)
    if is_compressed(kind):
        return salvage_compressed(path, output, exists=exists, tick=tick)
    plain = salvage_records(path, output, exists=exists, tick=tick)
    if plain.output is None and kind.may_be_damaged_records:
        # The first bytes of a compressed file may be damaged, too.
        packed = salvage_compressed(path, output, exists=exists, tick=lambda _: tick(0))
        if packed.items("kept") + packed.items("repaired") > plain.items("kept") + plain.items("repaired"):
            return packed
    return plain
