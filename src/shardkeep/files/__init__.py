"""Files that appear whole, locks that say who holds them, descriptors that do not run out."""

from shardkeep.files.budget import Budget, budget
from shardkeep.files.lock import FileLock, lock
from shardkeep.files.publish import publish, publish_path, publish_set

__all__ = ["Budget", "FileLock", "budget", "lock", "publish", "publish_path", "publish_set"]
