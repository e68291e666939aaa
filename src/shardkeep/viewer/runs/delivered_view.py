"""The view of the epochs of a run as its receipts prove them: ranks of records, losses, repetitions."""

from __future__ import annotations

from dataclasses import dataclass

from shardkeep.plan import RecordName
from shardkeep.viewer.data.epoch_picture import Span, column_count, edges_of
from shardkeep.viewer.locations import Location
from shardkeep.viewer.nearby import is_run, location_of_shard
from shardkeep.viewer.runs.deliveries import Band, Deliveries
from shardkeep.viewer.runs.receipts import RunEvidence, recent_receipts
from shardkeep.viewer.view import Answer, Page, View, Visit

__all__ = ["DELIVERED"]

_EPOCHS = 10
_ROWS = 50
_PLACES = 1000
_NEIGHBOURS = 32
_KINDS = ["lost", "repeated", "waiting", "dropped"]


@dataclass(frozen=True)
class _Names:
    """Names and addresses of records, as far as the shards are known."""

    found: Deliveries
    folder: Location | None

    def text(self, span: Span) -> str:
        name = f"{self.found.shards[span.shard]}: " if self.found.shards else "record "
        return name + f"{span.first:,}" + (f"–{span.last:,}" if span.last > span.first else "")

    def address(self, shard: int, record: int) -> str | None:
        return self._address(self.found.shards[shard], record) if self.found.shards else None

    def address_of(self, name: RecordName) -> str | None:
        return None if name.shard is None else self._address(name.shard, name.index)

    def _address(self, shard: str, record: int) -> str | None:
        place = None if self.folder is None else location_of_shard(self.folder, shard)
        return None if place is None else place.address("records", record=record)

    def marks(self, band: Band) -> list[tuple[int, str | None]]:
        """Return the columns of a band with the address of the first record in each."""
        shards, numbers = self.found.table.locate([record for _, record in band.marks])
        places = zip(band.marks, shards.tolist(), numbers.tolist(), strict=True)
        return [(column, self.address(shard, number)) for (column, _), shard, number in places]


def _show(visit: Visit) -> Answer:
    receipts = recent_receipts.of(visit.location)
    is_complete = receipts.update(visit.roots)
    run = receipts.found
    values: dict[str, object] = {
        "receipts": receipts,
        "is_complete": is_complete,
        "run": run,
        "found": None,
        "epoch": None,
        "kind": None,
        "epochs": [],
        "place": visit.query.integer("place", 0, 0, _PLACES),
    }
    if run is not None and run.epochs:
        values |= _epoch(visit, run)
    return Page("runs/delivered.html", values)


def _epoch(visit: Visit, run: RunEvidence) -> dict[str, object]:
    epochs = list(run.epochs)
    usual = next((one for one in epochs if not (run.epochs[one].ok or run.epochs[one].under_way)), epochs[-1])
    epoch = visit.query.integer("epoch", usual, 0)
    epoch = epoch if epoch in run.epochs else usual
    paging = visit.query.paging(_EPOCHS, len(epochs), default=epochs.index(epoch))
    found = run.deliveries(epoch)
    kind = visit.query.choice("kind", [one for one in _KINDS if one in found.bands] or ["lost"])
    band = found.bands.get(kind)
    row_paging = visit.query.paging(_ROWS, found.count(kind) if band else 0, name="row")
    return {
        "epoch": epoch,
        "epochs": [run.epochs[one] for one in epochs[paging.here]],
        "paging": paging,
        "found": found,
        "edges": edges_of(found.table),
        "columns": column_count(found.table.total),
        "names": _Names(found, run.data),
        "kind": kind,
        "rows": found.rows(kind, row_paging.first, _ROWS) if band else [],
        "row_paging": row_paging,
        "here": found.at(visit.query.integer("place", 0, 0, _PLACES) / _PLACES, _NEIGHBOURS),
    }


def _fits(location: Location) -> bool:
    return is_run(location.path) if location.is_folder else location.kind.name == "hdf5"


# Whether an HDF5 file has receipts is known once it is open: its page has the link.
DELIVERED = View("delivered", "Delivered", _fits, _show, lambda location: location.is_folder)
