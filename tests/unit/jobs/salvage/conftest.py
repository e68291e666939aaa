"""Child processes for the checks of HDF5 files, which serve all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shardkeep.files import child_python
from shardkeep.files.child_python import Children
from shardkeep.jobs.salvage.hdf5 import process
from shardkeep.jobs.verification import hdf5_children

_MODULES = (hdf5_children.CHILD, "shardkeep.jobs.salvage.collected_child", process.CHILD)


@pytest.fixture(scope="session", autouse=True)
def _kept_children() -> Iterator[None]:
    """Keep two children of each kind from test to test: the imports of one take longer than most tests."""
    kept = {module: Children(module) for module in _MODULES}
    first = {module: [children._take() for _ in range(2)] for module, children in kept.items()}
    for module, children in kept.items():
        for child in first[module]:
            children._idle.put(child)

    class Kept(Children):
        def __init__(self, module: str) -> None:
            super().__init__(module)
            self._idle = kept[module]._idle

        def __exit__(self, *error: Any) -> None:
            for child in [self._idle.get() for _ in range(self._idle.qsize())]:
                if child in first[self._module]:
                    self._idle.put(child)
                else:
                    child_python._end(child)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardkeep.jobs.salvage.run.Children", Kept)
        patch.setattr("shardkeep.jobs.salvage.collected.Children", Kept)
        patch.setattr("shardkeep.jobs.salvage.hdf5.salvage.Children", Kept)
        yield
    for children in kept.values():
        children.__exit__()
