"""One child process for all repairs of a test module: each start takes a third of a second."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from shardkeep.jobs.salvage.hdf5 import salvage
from shardkeep.jobs.salvage.hdf5.process import Reader


class SharedReader(Reader):
    """A reader that uses the child process of the module, until HDF5 does not survive a file."""

    child: subprocess.Popen[str] | None = None

    def __enter__(self) -> Reader:
        if SharedReader.child is not None and SharedReader.child.poll() is None:
            self._child = SharedReader.child
        return self

    def __exit__(self, *error: object) -> None:
        if self._child is not SharedReader.child:
            super().__exit__(*error)


@pytest.fixture(scope="module")
def shared_reader() -> Iterator[type[Reader]]:
    """The class for all repairs of the module."""
    # Started before the first test, which may not leave a child.
    SharedReader.child = Reader.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salvage, "Reader", SharedReader)
        yield SharedReader
    SharedReader.child.kill()
    SharedReader.child.communicate()
