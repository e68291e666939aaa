"""All views, in the order of their tabs."""

from __future__ import annotations

from shardkeep.viewer.data.damage import DAMAGE
from shardkeep.viewer.data.epoch import EPOCH
from shardkeep.viewer.data.histograms import DISTRIBUTIONS
from shardkeep.viewer.data.records import RECORDS
from shardkeep.viewer.data.shards import SHARDS
from shardkeep.viewer.folder import FILES
from shardkeep.viewer.hdf5.view import CONTENTS
from shardkeep.viewer.runs.delivered_view import DELIVERED
from shardkeep.viewer.runs.run_view import RUN
from shardkeep.viewer.runs.scalars_view import SCALARS
from shardkeep.viewer.view import View

__all__ = ["VIEWS"]

# The last one fits everything.
VIEWS: tuple[View, ...] = (
    RUN,
    SCALARS,
    SHARDS,
    EPOCH,
    RECORDS,
    DISTRIBUTIONS,
    DAMAGE,
    CONTENTS,
    DELIVERED,
    FILES,
)
