"""Result of an audit: frozen dataclasses that print one line for each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary
from shardkeep.plan.coverage import RangeSet

__all__ = ["AuditReport", "DamagedRecord", "EpochAudit", "RecordName"]


@dataclass(frozen=True, slots=True)
class RecordName:
    """A record: its global number, its shard and its number in it (None and -1 if the receipt lacks them)."""

    record: int
    shard: str | None
    index: int

    __repr__ = summary

    def __str__(self) -> str:
        return f"record {self.record}" if self.shard is None else f"{self.shard} record {self.index}"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that was skipped or repaired, and its half-open byte range in its shard."""

    name: RecordName
    start_bytes: int
    stop_bytes: int

    __repr__ = summary

    def __str__(self) -> str:
        return f"{self.name} (bytes {self.start_bytes}-{self.stop_bytes})"


@dataclass(frozen=True, slots=True)
class EpochAudit:
    """Deliveries and faults of one epoch, according to the receipts.

    Attributes
    ----------
    epoch : int
    records : int
        Number of records of the epoch.
    delivered : int
        Number of records that were delivered at least once; skipped records are not delivered.
    lost, repeated : RangeSet
        Positions that were not delivered, or were delivered more than once; record numbers where ranks read
        whole files (``shard_by="files"``).
    dropped : RangeSet
        Positions that ``remainder="drop"`` left out; not a fault.
    lost_names, repeated_names : tuple of RecordName
        The first records of `lost` and `repeated`.
    skipped : tuple of DamagedRecord
        Damaged records that ``on_corrupt="skip"`` left out; a fault.
    repaired : tuple of DamagedRecord
        Damaged records that ``on_corrupt="repair"`` corrected and delivered; not a fault.
    under_way : bool
        True if the epoch is the newest one and lacks only its end, so that it may be unfinished.
    problems : tuple of str
        Descriptions of faults, with advice.
    """

    epoch: int
    records: int
    delivered: int
    lost: RangeSet
    repeated: RangeSet
    dropped: RangeSet
    lost_names: tuple[RecordName, ...] = ()
    repeated_names: tuple[RecordName, ...] = ()
    skipped: tuple[DamagedRecord, ...] = ()
    repaired: tuple[DamagedRecord, ...] = ()
    under_way: bool = False
    problems: tuple[str, ...] = ()

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if every record, except dropped ones, was delivered exactly once."""
        return not (self.problems or self.lost.records or self.repeated.records or self.skipped)

    def __str__(self) -> str:
        parts = ["ok" if self.ok else "incomplete" if self.under_way else "FAILED"]
        parts.append(f"{self.delivered} of {self.records} records delivered")
        if self.lost.records:
            parts.append(f"{self.lost.records} lost{_first(self.lost_names)}")
        if self.repeated.records:
            parts.append(f"{self.repeated.records} repeated{_first(self.repeated_names)}")
        if self.dropped.records:
            parts.append(f"{self.dropped.records} dropped")
        if self.skipped:
            parts.append(f"{len(self.skipped)} skipped as damaged{_first(self.skipped)}")
        if self.repaired:
            parts.append(f"{len(self.repaired)} repaired{_first(self.repaired)}")
        if self.problems:
            parts.append(f"{len(self.problems)} problem{'s' * (len(self.problems) > 1)}")
        return f"epoch {self.epoch}: " + ", ".join(parts)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of `audit`.

    Attributes
    ----------
    receipts : int
        Number of receipts that were used; older receipts of the same Loader are not counted.
    epochs : tuple of EpochAudit
        Result of each epoch, in ascending order.
    problems : tuple of str
        Faults that do not belong to a single epoch.
    """

    receipts: int
    epochs: tuple[EpochAudit, ...]
    problems: tuple[str, ...] = ()

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if the receipts prove every audited epoch."""
        return bool(self.epochs) and not self.problems and all(epoch.ok for epoch in self.epochs)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports.

        Returns
        -------
        dict
            ``ok``, the faults and the epochs of the report.
        """
        return {
            "ok": self.ok,
            "receipts": self.receipts,
            "problems": list(self.problems),
            "epochs": [{"ok": epoch.ok, **asdict(epoch)} for epoch in self.epochs],
        }

    def __str__(self) -> str:
        return "\n".join([*(str(epoch) for epoch in self.epochs), *self.problems])


def _first(names: Sequence[RecordName | DamagedRecord]) -> str:
    return f" (first: {names[0]})" if names else ""
