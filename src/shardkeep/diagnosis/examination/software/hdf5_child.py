"""Child process that imports h5py and opens a file with it, since a broken library may crash.

Standard output has one JSON object: ``hdf5``, ``h5py`` and ``effect``, the locking mode; or ``error``.
"""

from __future__ import annotations

import json
import os
import signal

__all__ = ["describe"]

_LONGEST_S = 10


def describe() -> int:
    """Write what is known of HDF5 in a new process."""
    signal.alarm(_LONGEST_S)  # ends this process also if the parent was killed while HDF5 waits for a lock
    try:
        import h5py

        from shardkeep.hdf5.locking.mode import locking_mode

        found = {
            "h5py": h5py.version.version,
            "hdf5": h5py.version.hdf5_version,
            "effect": locking_mode().effect,
        }
    except Exception as error:  # of any kind: the libraries are what is examined
        found = {"error": f"{type(error).__name__}: {error}"}
    os.write(1, b"\n" + json.dumps(found).encode())
    return 0
