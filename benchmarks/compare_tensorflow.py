"""Comparison of the TensorFlow adapter with the bare loader, a repeated batch and the tutorials' input.

All jobs run in one process with TensorFlow.
"""

from __future__ import annotations

from benchmarks.comparison import Comparison

COMPARISONS = [
    Comparison(
        "PNG to float32 through to_dataset, beside the bare Loader",
        "small",
        "adapter to_dataset",
        "adapter loader",
        0.9,
        256,
    ),
    Comparison(
        "model.fit of a small network with to_dataset, beside one repeated batch",
        "small",
        "adapter train to_dataset",
        "adapter train repeated",
        0.9,
        256,
    ),
    Comparison(
        "model.fit of one Dense layer with to_dataset, beside one repeated batch",
        "small",
        "adapter fit to_dataset",
        "adapter fit repeated",
        0.9,
        256,
    ),
    Comparison(
        "model.fit of one Dense layer with to_dataset, beside interleave + map + batch, in processor time",
        "small",
        "adapter processor fit to_dataset",
        "adapter processor fit tutorial",
        3,
        256,
    ),
    Comparison(
        "PNG to float32 through to_dataset, beside interleave + map + batch, in processor time",
        "small",
        "adapter processor to_dataset",
        "adapter processor tutorial",
        3,
        256,
    ),
]
