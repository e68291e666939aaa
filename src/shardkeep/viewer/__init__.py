"""The read-only web page: data sets, records, damage, HDF5 files and runs, for a browser on this machine.

Sub-rooms have the views of each kind of file. Nothing here writes a file, and no view reads a file whole.
Other rooms import `kept`, `locations`, `nearby`, `serve` and `view`.
"""

from shardkeep._lazy import public_names
from shardkeep.viewer.serve import serve

__all__ = ["serve"]

__dir__ = public_names(__name__)
