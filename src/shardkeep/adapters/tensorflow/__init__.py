"""TensorFlow: datasets of a `Loader` for training loops and strategies, and a hook for sessions.

Each module imports TensorFlow by ``import_extra("tensorflow", "shardkeep.adapters.tensorflow")``, except
`thread_pools`, which is for releases that are too old for the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.adapters.tensorflow.dataset import ShardkeepDataset, to_dataset
    from shardkeep.adapters.tensorflow.parameter_server import StepReader
    from shardkeep.adapters.tensorflow.run_hook import RunHook
    from shardkeep.adapters.tensorflow.strategies import DistributedBatches, distribute, local_rows
    from shardkeep.adapters.tensorflow.thread_pools import quiet_exit
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep.adapters.tensorflow.dataset": "ShardkeepDataset to_dataset",
            "shardkeep.adapters.tensorflow.parameter_server": "StepReader",
            "shardkeep.adapters.tensorflow.run_hook": "RunHook",
            "shardkeep.adapters.tensorflow.strategies": "DistributedBatches distribute local_rows",
            "shardkeep.adapters.tensorflow.thread_pools": "quiet_exit",
        },
    )

__all__ = [
    "DistributedBatches",
    "RunHook",
    "ShardkeepDataset",
    "StepReader",
    "distribute",
    "local_rows",
    "quiet_exit",
    "to_dataset",
]
