"""The view of an epoch: which rank reads which part of the data set, and when."""

from __future__ import annotations

from shardkeep.plan.checks import MAX_EPOCH, MAX_SEED
from shardkeep.plan.order import Shuffle
from shardkeep.plan.shards import ShardTable
from shardkeep.viewer.data.data_set import data_sets
from shardkeep.viewer.data.epoch_picture import PlannedEpoch, Settings, edges_of
from shardkeep.viewer.data.shards import SHARDS, chosen_set
from shardkeep.viewer.nearby import runs_below
from shardkeep.viewer.view import Answer, Page, Query, View, Visit

__all__ = ["EPOCH"]

_MOST_RANKS = 4096
_MOST_BATCH = 65_536
_SHUFFLES: dict[str, Shuffle] = {"no": False, "blocks": "blocks", "global": "global"}
_PLACES = 1000


def _settings(query: Query) -> Settings:
    return Settings(
        query.integer("ranks", 4, 1, _MOST_RANKS),
        query.integer("batch", 32, 1, _MOST_BATCH),
        _SHUFFLES[query.choice("shuffle", list(_SHUFFLES))],
        query.choice("shard_by", ["records", "files"]),
        query.choice("remainder", ["mask", "drop", "short"]),
        query.integer("seed", 0, 0, MAX_SEED),
        query.integer("epoch", 0, 0, MAX_EPOCH),
    )


def _show(visit: Visit) -> Answer:
    found = chosen_set(visit)
    settings = _settings(visit.query)
    place = visit.query.integer("place", 0, 0, _PLACES)
    values: dict[str, object] = {
        "set": found,
        "sets": data_sets(visit.location.path),
        "settings": settings,
        "shuffle": visit.query.choice("shuffle", list(_SHUFFLES)),
        "place": place,
        "picture": None,
        "runs": runs_below(visit.roots),
    }
    if not found.unindexed and found.records:
        table = ShardTable([one.records or 0 for one in found.states])
        planned = PlannedEpoch(settings, table, found.sizes)
        steps = planned.steps
        step = min(place * steps // _PLACES, max(steps - 1, 0))
        values |= {
            "picture": planned.picture(),
            "steps": steps,
            "step": step,
            "reads": planned.reads(step) if steps else [],
            "edges": edges_of(table),
            "shards": [visit.location.child(name) for name in found.names],
        }
    return Page("epoch.html", values)


EPOCH = View("epoch", "Epoch", SHARDS.fits, _show)
