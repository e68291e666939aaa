"""Damaged records that did not end a run: skipped or repaired, and named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_EPOCH

__all__ = ["Damage", "damage_from_lists", "damage_to_lists"]

_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record that one rank met in one epoch.

    Attributes
    ----------
    epoch : int
    record : int
        Global record number.
    start_bytes, stop_bytes : int
        Where its frame lies in its shard, half open.
    repaired : bool
        Whether it was delivered as it had been written; otherwise it was skipped.
    """

    epoch: int
    record: int
    start_bytes: int
    stop_bytes: int
    repaired: bool


def damage_to_lists(damage: Iterable[Damage], *, repaired: bool) -> list[list[int]]:
    """Return what was repaired, or what was skipped, as a receipt stores it."""
    return [[d.epoch, d.record, d.start_bytes, d.stop_bytes] for d in damage if d.repaired == repaired]


def damage_from_lists(key: str, lists: Sequence[object], *, records: int) -> tuple[Damage, ...]:
    """Read what `damage_to_lists` wrote under `key`; the input may come from anywhere.

    Raises
    ------
    PlanError
        Naming the entry that is wrong.
    """
    found = []
    for i, entry in enumerate(lists):
        numbers = entry if isinstance(entry, list | tuple) else ()
        whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
        if len(whole) != 4 or len(numbers) != 4:
            raise PlanError(
                f"receipt has {key}[{i}]={entry!r:.60}, wanted four whole numbers: was it edited?"
            )
        epoch, record, start, stop = whole
        if not (0 <= epoch <= MAX_EPOCH and 0 <= record < records and 0 <= start < stop <= _MAX_BYTES):
            raise PlanError(
                f"receipt has {key}[{i}]={entry!r:.60}, wanted [epoch, record below {records}, first byte,"
                " byte behind the last]: was it edited?"
            )
        found.append(Damage(epoch, record, start, stop, repaired=key == "repaired"))
    return tuple(found)
