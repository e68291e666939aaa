"""The loader: orders, the first batch, memory."""

from __future__ import annotations

from benchmarks.comparison import Comparison
from benchmarks.jobs import TABLE, loaded

_GLOBAL = loaded(features=TABLE, batch_size=1024, shuffle="global")
_BLOCKS = loaded(features=TABLE, batch_size=1024, shuffle="blocks")
_FULL = "40 features, {}, beside a full shuffle buffer"

COMPARISONS = [
    Comparison(_FULL.format("global shuffle"), "table", _GLOBAL, "table shuffled", 3, 1024),
    Comparison(_FULL.format("shuffled blocks"), "table", _BLOCKS, "table shuffled", 4, 1024),
    Comparison(
        _FULL.format("global shuffle, memory at the peak"),
        "table",
        _GLOBAL,
        "table shuffled",
        10,
        1024,
        of="memory",
    ),
]
