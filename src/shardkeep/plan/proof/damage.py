"""Damaged records that a run skipped or repaired, and their form in a receipt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardkeep.errors import PlanError
from shardkeep.plan.checks import MAX_ENTRIES, MAX_EPOCH

__all__ = ["Damage", "damage_from_lists", "damage_to_lists"]

_MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged record that one rank read in one epoch.

    Attributes
    ----------
    epoch : int
    record : int
        Global record number.
    start_bytes, stop_bytes : int
        Half-open byte range of its frame in its shard.
    repaired : bool
        True if the record was repaired and delivered; False if it was skipped.
    """

    epoch: int
    record: int
    start_bytes: int
    stop_bytes: int
    repaired: bool


def damage_to_lists(damage: Iterable[Damage], *, repaired: bool) -> list[list[int]]:
    """Return the repaired or the skipped records in the form of a receipt.

    There is one entry for each record and each range of epochs in which it was read: first epoch, record,
    first byte, byte after the last and, if more than one, the number of epochs.
    """
    entries: list[list[int]] = []
    newest: dict[tuple[int, int, int], list[int]] = {}
    for one in damage:
        if one.repaired != repaired:
            continue
        where = (one.record, one.start_bytes, one.stop_bytes)
        entry = newest.get(where)
        if entry is not None and one.epoch == entry[0] + (entry[4] if len(entry) > 4 else 1):
            entry[4:] = [one.epoch - entry[0] + 1]
        else:
            newest[where] = [one.epoch, *where]
            entries.append(newest[where])
    return entries


def damage_from_lists(key: str, lists: Sequence[object], *, records: int) -> tuple[Damage, ...]:
    """Parse the lists of `damage_to_lists` under `key`, from a receipt of unknown origin.

    Raises
    ------
    PlanError
        An entry is wrong; the message names it.
    """
    found: list[Damage] = []
    for i, entry in enumerate(lists):
        numbers = entry if isinstance(entry, list | tuple) else ()
        whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
        if len(whole) not in (4, 5) or len(numbers) != len(whole):
            raise PlanError(
                f"receipt has {key}[{i}]={entry!r:.60}, expected four or five integers: was it edited?"
            )
        epoch, record, start, stop = whole[:4]
        epochs = whole[4] if len(whole) > 4 else 1
        if not 1 <= epochs <= MAX_ENTRIES - len(found):
            raise PlanError(
                f"receipt has {key} with {epochs} epochs; at most {MAX_ENTRIES} entries are allowed"
            )
        if not (
            0 <= epoch <= MAX_EPOCH - epochs + 1 and 0 <= record < records and 0 <= start < stop <= _MAX_BYTES
        ):
            raise PlanError(
                f"receipt has {key}[{i}]={entry!r:.60}, expected [epoch, record below {records}, first byte,"
                " byte after the last]: was it edited?"
            )
        found += [
            Damage(one, record, start, stop, repaired=key == "repaired")
            for one in range(epoch, epoch + epochs)
        ]
    return tuple(found)
