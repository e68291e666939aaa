"""Comparison of the Keras adapter with the bare Loader, and with `fit` of one repeated batch.

In processor time: model and loader share the processors, so their times add up.
"""

from __future__ import annotations

from benchmarks.comparison import Comparison

_JOBS = [
    ("drained", "loader", "PyDataset beside the Loader itself"),
    ("fit", "generator", "fit of PyDataset beside fit of a generator over the Loader"),
    ("fit", "repeated", "fit of PyDataset beside fit of one repeated batch, without input"),
]

COMPARISONS = [
    Comparison(
        f"Keras on {backend}, PNG to float32, processor time: {name}",
        "small",
        f"{backend} keras {ours}",
        f"{backend} keras {peer}",
        0.9,
        256,
    )
    for backend in ("torch", "jax")
    for ours, peer, name in _JOBS
]
