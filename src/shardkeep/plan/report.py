"""What an audit found: frozen dataclasses that print a line for each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep.plan.coverage import RangeSet

__all__ = ["AuditReport", "DamagedRecord", "EpochAudit", "RecordName"]


@dataclass(frozen=True, slots=True)
class RecordName:
    """One record: its global number, and its shard and number in it (None and -1 when not in the receipt)."""

    record: int
    shard: str | None
    index: int

    def __str__(self) -> str:
        return f"record {self.record}" if self.shard is None else f"{self.shard} record {self.index}"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A record that was skipped or repaired, and where its bytes are in its shard (half open)."""

    name: RecordName
    start_bytes: int
    stop_bytes: int

    def __str__(self) -> str:
        return f"{self.name} (bytes {self.start_bytes}-{self.stop_bytes})"


@dataclass(frozen=True, slots=True)
class EpochAudit:
    """What the receipts say about one epoch.

    Attributes
    ----------
    epoch : int
    records : int
        How many the epoch has.
    delivered : int
        How many of them were delivered, however often; those that were skipped are not.
    lost, repeated : RangeSet
        Positions that nobody delivered, or that were delivered more than once; where ranks read whole files
        (``shard_by="files"``), record numbers.
    dropped : RangeSet
        Positions left out on purpose by ``remainder="drop"``: named, not a fault.
    lost_names, repeated_names : tuple of RecordName
        The first few records of `lost` and `repeated`.
    skipped : tuple of DamagedRecord
        Damaged records that were left out, by ``on_corrupt="skip"``: known, and still a fault.
    repaired : tuple of DamagedRecord
        Damaged records that were put right and delivered, by ``on_corrupt="repair"``: no fault.
    under_way : bool
        Whether the epoch is the newest and all that is lost is its end: it may simply not be over.
    problems : tuple of str
        Faults in words, with what to do.
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

    @property
    def ok(self) -> bool:
        """Whether every record was delivered exactly once, dropped ones aside."""
        return not (self.problems or self.lost.records or self.repeated.records or self.skipped)

    def __str__(self) -> str:
        words = ["ok" if self.ok else "incomplete" if self.under_way else "FAILED"]
        words.append(f"{self.delivered} of {self.records} records delivered")
        if self.lost.records:
            words.append(f"{self.lost.records} lost{_first(self.lost_names)}")
        if self.repeated.records:
            words.append(f"{self.repeated.records} repeated{_first(self.repeated_names)}")
        if self.dropped.records:
            words.append(f"{self.dropped.records} dropped")
        if self.skipped:
            words.append(f"{len(self.skipped)} skipped as damaged{_first(self.skipped)}")
        if self.repaired:
            words.append(f"{len(self.repaired)} repaired{_first(self.repaired)}")
        if self.problems:
            words.append(f"{len(self.problems)} problem{'s' * (len(self.problems) > 1)}")
        return f"epoch {self.epoch}: " + ", ".join(words)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of `audit`.

    Attributes
    ----------
    receipts : int
        How many were taken into account, after older ones of the same Loader were set aside.
    epochs : tuple of EpochAudit
        In ascending order.
    problems : tuple of str
        Faults that concern no single epoch.
    """

    receipts: int
    epochs: tuple[EpochAudit, ...]
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the receipts prove every audited epoch."""
        return bool(self.epochs) and not self.problems and all(epoch.ok for epoch in self.epochs)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-able types."""
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
