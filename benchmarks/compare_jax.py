"""Comparison of the adapters for Grain and JAX with the bare Loader, all in the process of the framework."""

from benchmarks.comparison import Comparison

_TRACKED = "Grain: TrackedDataset beside the bare Loader"
_WORKERS = "Grain: TrackedDataset with 2 workers beside none"
_RECORDS = "Grain: RecordSource in a MapDataset beside records one by one"
_GLOBAL = "JAX: make_global_batch beside make_array_from_process_local_data"

COMPARISONS = [
    Comparison(_TRACKED, "small", "jax tracked", "jax bare", 0.9, 256),
    Comparison(_WORKERS, "small", "jax workers", "jax tracked", 0.1, 256),
    Comparison(_RECORDS, "small", "jax records", "jax single", 2, 256),
    Comparison(_GLOBAL, "small", "jax global", "jax placed", 0.9, 256),
]
