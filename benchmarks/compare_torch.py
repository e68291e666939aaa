"""Comparison of the torch adapter, in its environment: with a DataLoader of workers, and with the Loader."""

from __future__ import annotations

from benchmarks.comparison import Comparison

COMPARISONS = [
    Comparison(
        "PNG to float32: DataLoader(loader) beside a DataLoader of 2 workers and Pillow",
        "small",
        "torch adapter",
        "torch two workers",
        4,
        256,
    ),
    Comparison(
        "PNG to float32: DataLoader(loader) beside the Loader itself",
        "small",
        "torch adapter",
        "torch loader",
        0.9,
        256,
    ),
]
