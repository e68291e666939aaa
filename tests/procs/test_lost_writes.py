"""HDF5 reads back bytes whose write failed: it survives, whatever its memory held."""

import subprocess
import sys

from tests.waiting import PATIENCE_S

# New memory holds references as in a file: to nothing, and to an object that the heap does not have. If HDF5
# takes them for those of the old text, it cannot free that, and then crashes: it frees the references that it
# has converted so far as if they were pointers.
_WORK = """
import errno, itertools, os, struct, sys
import h5py
from shardkeep.errors import DurabilityError
from shardkeep.files.publish import publish_raw

text = h5py.string_dtype()
words = [str(i) for i in range(600)]
original = os.preadv
try:
    with publish_raw(sys.argv[1]) as temporary:
        temporary.deferred = True
        with temporary.failure_first(), h5py.File(temporary, "w") as file:
            file.create_dataset("before", data=words, dtype=text)
            file.flush()
            with open(temporary.name, "rb") as there:
                heap = there.read().index(b"GCOL")
            garbage = struct.pack("<IQIIQI", 0, 0, 0, 5, heap, 60_000)

            def preadv(fd, buffers, offset):
                for buffer in buffers:
                    view = memoryview(buffer).cast("B")
                    view[:] = bytes(itertools.islice(itertools.cycle(garbage), len(view)))
                return original(fd, buffers, offset)

            os.preadv = preadv
            temporary.fail(OSError(errno.ENOSPC, "full"))
            dataset = file.create_dataset("lost", (600,), text)
            dataset[:300] = words[:300]
            dataset[300:] = words[300:]
            file.flush()
except DurabilityError as error:
    print(error.errno == errno.ENOSPC)
"""


def test_text_whose_storage_could_not_be_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _WORK, str(tmp_path / "a.h5")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert list(tmp_path.iterdir()) == []
