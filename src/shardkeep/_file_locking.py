"""Loading of HDF5 without ``HDF5_USE_FILE_LOCKING=BEST_EFFORT``.

BEST_EFFORT is the default of HDF5, except that a program cannot ask for anything else. HDF5 then fails where
a file system refuses locks by another error than ENOSYS (ENOLCK, EOPNOTSUPP), since `shardkeep.hdf5.open`
cannot open the file again without a lock. Programs that this process starts inherit the variable.
"""

from __future__ import annotations

import os
import sys

__all__: list[str] = []

_VARIABLE = "HDF5_USE_FILE_LOCKING"


def _load_hdf5() -> None:
    """Load HDF5 with its default if the variable is BEST_EFFORT and h5py is not imported yet."""
    if os.environ.get(_VARIABLE) != "BEST_EFFORT" or "h5py" in sys.modules:
        return
    value = os.environ.pop(_VARIABLE)
    try:
        import h5py  # noqa: F401  # HDF5 reads the variable only now
    finally:
        os.environ[_VARIABLE] = value


_load_hdf5()
