"""Adapters, one for each framework, in its own protocol, names and types.

Each imports its framework, and none is imported before its first use. `grain` has datasets and data sources;
`huggingface` has datasets of Hugging Face; `jax` has global batches; `keras` has a dataset and callbacks;
`ray` has the source and the sink of Ray Data; `tensorflow` has datasets for training loops and strategies;
`torch` has the iterable dataset and the DataLoader. Other rooms import `passes`, `random_access`
and `short_epoch`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.adapters import grain, huggingface, jax, keras, ray, tensorflow, torch
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            f"shardkeep.adapters.{name}": name
            for name in ("grain", "huggingface", "jax", "keras", "ray", "tensorflow", "torch")
        },
    )

__all__ = ["grain", "huggingface", "jax", "keras", "ray", "tensorflow", "torch"]
