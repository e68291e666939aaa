"""TensorFlow: datasets of a `Loader` for training loops and strategies.

Each module imports TensorFlow by ``import_extra("tensorflow", "shardkeep.adapters.tensorflow")``.
"""

__all__ = []
