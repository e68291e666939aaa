"""Publication of whole files, locks with known holders, and a budget of descriptors.

Other rooms import any module.
"""

from shardkeep._lazy import public_names
from shardkeep.files.budget import Budget, budget
from shardkeep.files.locks.lock import FileLock, lock
from shardkeep.files.publish import publish, publish_path, publish_set

__all__ = ["Budget", "FileLock", "budget", "lock", "publish", "publish_path", "publish_set"]

__dir__ = public_names(__name__)
