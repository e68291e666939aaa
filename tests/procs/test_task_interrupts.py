"""A signal's exception at each step of the Python code that shares locks with other threads.

Covers `shardkeep.files.threads.tasks`, `shardkeep.files.writeback` and their callers. Python runs signal
handlers where a function begins and where a call of C code returns; a profile function is called at the
same places.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from shardkeep.tfrecord import Writer
from tests.waiting import PATIENCE_S

STRIKES = """
    import itertools, os, sys
    from pathlib import Path
    from shardkeep import merge, split
    from shardkeep.diagnosis.examination import examine
    from shardkeep.jobs.division import divide
    from shardkeep.jobs.pack_sources.images import ImageFolder
    from shardkeep.tfrecord import build_index

    divide._INLINE_BYTES = 0
    FILES = (
        "concurrent/futures/_base.py", "concurrent/futures/thread.py", "threading.py",
        "files/threads/tasks.py", "files/threads/work.py", "files/writeback.py", "files/file_set.py",
        "division/divide.py", "examination/examine.py",
    )

    class Strike(BaseException):
        pass

    def run_until(last, job):
        \"\"\"Run a job; raise at one of its steps. Return False if it ends before that step.\"\"\"
        steps = itertools.count()

        def profile(frame, event, argument):
            if event in ("call", "c_return") and frame.f_code.co_filename.endswith(FILES):
                if next(steps) == last:
                    raise Strike

        sys.setprofile(profile)
        try:
            job()
            return next(steps) > last
        except Strike:
            return True
        except RuntimeError as error:  # "release unlocked lock", of the condition in `Thread.start`
            if not isinstance(error.__context__, Strike):
                raise
            return True
        finally:
            sys.setprofile(None)

    def split_job():
        split("a.tfrecord", "out/{shard}.tfrecord", shards=5, exists="replace")

    def index_job():
        build_index(["a.tfrecord", "b.tfrecord", "c.tfrecord"], threads=2)

    def pack_job():
        for _ in ImageFolder("images"):
            pass

    def merge_job():
        merge(["0.h5", "1.h5"], "out/all.h5", exists="replace")

    def doctor_job():
        run = examine._Run("check", lambda: [1])
        try:
            run.start()
            run.wait(0.1)
        finally:
            run.wait(0.1)

    job, stride = globals()[sys.argv[1] + "_job"], int(sys.argv[2])
    for last in itertools.count(0, stride):
        print(last, flush=True)
        if not run_until(last, job):
            break
        left = [name for name in os.listdir("out") if name.endswith(".sktmp")]
        assert not left, left
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name in "abc":
        with Writer(folder / f"{name}.tfrecord") as writer:
            for number in range(20):
                writer.write(b"x" * number)
    for name in "01":
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(10.0))
    (folder / "images").mkdir()
    for name in "01":
        Image.new("L", (2, 2)).save(folder / "images" / f"{name}.png")
    (folder / "out").mkdir()
    return folder


# The stride of split and merge meets each of their waits, at other steps.
@pytest.mark.parametrize(
    ("job", "stride"),
    [
        *(("split", 5), ("merge", 3), ("index", 1), ("pack", 1), ("doctor", 1)),
        *(pytest.param(job, 1, marks=pytest.mark.slow) for job in ("split", "merge")),
    ],
)
def test_an_exception_at_any_step_of_shared_locks_ends_the_job(job: str, stride: int, folder: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(STRIKES), job, str(stride)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, (done.stdout[-100:], done.stderr)
    assert int(done.stdout.split()[-1]) > 10
