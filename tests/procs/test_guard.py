"""The patterns that lose data: without the guard they do, with it they end before a byte is touched.

Covers `shardkeep.hdf5.guard.findings` and `shardkeep.hdf5.guard.watch`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import LockError, LockTimeoutError
from shardkeep.hdf5 import guard
from tests.waiting import PATIENCE_S, eventually


def run(folder: Path, body: str, *arguments: str, guarded: bool = False, **variables: str):
    """Run a program, as it is or under ``python -m shardkeep.guard``."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(body))
    command = [sys.executable, *(["-m", "shardkeep.guard"] if guarded else []), str(script), *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **variables},
    )


def hold(path: Path, mode: str) -> subprocess.Popen[bytes]:
    """Start a process that has a file open."""
    body = f"import h5py, sys; f = h5py.File({str(path)!r}, {mode!r}); print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"1\n"
    return child


def let_go(child: subprocess.Popen[bytes]) -> None:
    child.communicate(timeout=PATIENCE_S)


def made(folder: Path) -> Path:
    with h5py.File(folder / "a.h5", "w") as file:
        file["x"] = np.arange(1000)
    return folder / "a.h5"


TRUNCATES = """
    import h5py
    h5py.File("a.h5", "w")
"""


def test_w_over_a_file_that_another_process_has_open(tmp_path):
    path = made(tmp_path)
    whole = path.read_bytes()
    child = hold(path, "r")
    try:
        guarded = run(tmp_path, TRUNCATES, guarded=True)
        assert guarded.returncode == 1
        assert "LockError: mode 'w' would empty 'a.h5'" in guarded.stderr
        assert guarded.stderr.count("  File ") == 2, "the program's line, and the one that raises"
        assert f"pid {child.pid}" in guarded.stderr
        assert path.read_bytes() == whole

        plain = run(tmp_path, TRUNCATES)
        assert plain.returncode == 1  # it asks for the lock after it has emptied the file
        assert path.stat().st_size == 0
    finally:
        let_go(child)


FORKS = """
    import os, sys, h5py, numpy as np
    f = h5py.File("a.h5", "w")
    x = f.create_dataset("x", (50,), maxshape=(None,), chunks=(10,), dtype="i8", data=np.arange(50))
    child = os.fork()
    if child == 0:
        if sys.argv[1] == "close":
            os.read(0, 1)
            f.close()
        os.read(0, 1)
        sys.exit(0)
    x.resize(10_050, 0)
    x[50:] = np.arange(10_000)
    f.close()
    with open("closed", "w"): pass
"""


def forked(folder: Path, how: str, *, guarded: bool) -> tuple[int, str]:
    """Let a child end after its parent has written and closed; return the rows and what was said."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(FORKS))
    command = [sys.executable, *(["-m", "shardkeep.guard"] if guarded else []), str(script), how]
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(lambda: (folder / "closed").exists() or child.poll() is not None)
    assert (folder / "closed").exists()
    said = child.communicate(b"12", timeout=PATIENCE_S)[1].decode()
    try:
        with h5py.File(folder / "a.h5") as file:
            return len(file["x"]), said
    except OSError:
        return -1, said


@pytest.mark.parametrize("how", ["exit", "close"])
def test_a_forked_child_that_ends_or_closes(tmp_path, how):
    rows, _ = forked(tmp_path, how, guarded=False)
    assert rows != 10_050, "without the guard the parent's rows should be lost"
    (tmp_path / "closed").unlink()
    rows, said = forked(tmp_path, how, guarded=True)
    assert rows == 10_050
    assert "LockError: the writer of 'a.h5', opened by process" in said
    assert "in a forked child" in said


USES = """
    import os, sys, h5py
    f = h5py.File("a.h5", "w")
    f["x"] = [1, 2, 3]
    if os.fork() == 0:
        x = f.get
        for use in (lambda: x("x")[:], lambda: x("x").resize(1), f.flush, lambda: h5py.File("a.h5")):
            try:
                use()
            except OSError as error:
                print(type(error).__name__, "forked" in str(error))
        with h5py.File("own.h5", "w") as own:
            own["y"] = [4]
        sys.stdout.flush()
        os._exit(0)
    os.wait()
    f["y"] = [5]
    f.close()
    with h5py.File("a.h5") as f:
        print(list(f), f["x"][:], list(h5py.File("own.h5")))
"""


def test_a_forked_child_that_uses_the_handle(tmp_path):
    done = run(tmp_path, USES, guarded=True)
    assert done.stdout == "LockError True\n" * 4 + "['x', 'y'] [1 2 3] ['y']\n", done.stderr


APPENDS = """
    import sys, h5py, numpy as np
    rank = sys.argv[1]
    while True:
        try:
            with h5py.File("a.h5", "a", locking=False) as f:
                print(1, flush=True)
                sys.stdin.readline()
                for i in range(20):
                    f[f"rank{rank}/{i}"] = np.full(1000, int(rank))
            break
        except BlockingIOError:
            pass
"""


def started(folder: Path, rank: int, *, guarded: bool) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(textwrap.dedent(APPENDS))
    extra = ["-W", "ignore", "-m", "shardkeep.guard"] if guarded else []
    return subprocess.Popen(
        [sys.executable, *extra, "script.py", str(rank)],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def whole(path: Path, rank: int) -> int:
    """How many of a rank's datasets are as they were written."""
    count = 0
    try:
        with h5py.File(path) as file:
            for i in range(20):
                with contextlib.suppress(KeyError, OSError, RuntimeError, ValueError):
                    count += bool((file[f"rank{rank}/{i}"][:] == rank).all())
    except (OSError, RuntimeError):
        return 0
    return count


@pytest.mark.parametrize("guarded", [False, True])
def test_two_unlocked_writers(tmp_path, guarded):
    path = made(tmp_path)
    one = started(tmp_path, 1, guarded=guarded)
    assert one.stdout is not None
    assert one.stdout.readline() == "1\n"
    two = started(tmp_path, 2, guarded=guarded)
    assert two.stdout is not None
    second_is_in = two.stdout.readline() == "1\n"
    said = [child.communicate("go\n", timeout=PATIENCE_S)[1] for child in (one, two)]
    kept = whole(path, 1) + whole(path, 2)
    if guarded:
        assert not second_is_in
        assert "LockError: 'a.h5' is being written by" in said[1]
        assert f"pid {one.pid}" in said[1]
        assert (kept, whole(path, 1)) == (20, 20)
    else:
        assert second_is_in
        assert kept < 40


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_of_multiprocessing_are_guarded(tmp_path, method):
    path = made(tmp_path)
    child = hold(path, "r")
    body = """
        import multiprocessing, sys, h5py
        def work(path):
            h5py.File(path, "w")
        if __name__ == "__main__":
            one = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=("a.h5",))
            one.start()
            one.join()
            print(one.exitcode)
    """
    try:
        done = run(tmp_path, body, method, guarded=True)
        assert (done.stdout, "would empty" in done.stderr) == ("1\n", True), done.stderr
        assert path.stat().st_size > 0
    finally:
        let_go(child)


def test_harmless_findings_warn(tmp_path):
    path = made(tmp_path)
    with guard() as watch:
        with pytest.warns(RuntimeWarning, match="locking=False: leave locking="):
            h5py.File(path, "a", locking=False).close()
        with h5py.File(path, "a"), pytest.warns(RuntimeWarning, match="open it once and pass the handle on"):
            h5py.File(path, "a").close()
    assert [one.kind for one in watch.findings] == ["locking off", "two writers here"]
    with guard(on_finding="raise"):
        with pytest.raises(LockError, match="locking=False"):
            h5py.File(path, "a", locking=False)
        assert not (tmp_path / "a.h5.lock").exists()
        h5py.File(path, "a").close()


@pytest.mark.parametrize("value", ["FALSE", "0"])
def test_locks_switched_off_by_the_variable(tmp_path, value):
    body = "import h5py\nfor name in ('a.h5', 'b.h5'):\n    h5py.File(name, 'w')\nh5py.File('a.h5', 'w')\n"
    done = run(tmp_path, body, guarded=True, HDF5_USE_FILE_LOCKING=value)
    assert done.returncode == 0
    script, off = tmp_path / "script.py", "is written with HDF5_USE_FILE_LOCKING switching locks off"
    # Where the program does it, not where we notice it.
    for line, name in ((3, "a.h5"), (3, "b.h5"), (4, "a.h5")):
        assert f"{script}:{line}: RuntimeWarning: {name!r} {off}" in done.stderr
    assert "\n  h5py.File('a.h5', 'w')\n" in done.stderr


def test_writer_of_shardkeep_is_detected(tmp_path):
    body = (
        "import sys, shardkeep as sk; f = sk.hdf5.open('a.h5', 'a'); print(1, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", body], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"1\n"
    try:
        with guard() as watch, pytest.raises(LockError, match=f"pid {child.pid}"):
            h5py.File(tmp_path / "a.h5", "a", locking=False)
        assert watch.findings[0].holder is not None
        assert watch.findings[0].holder.pid == child.pid
    finally:
        let_go(child)


def test_h5py_is_unchanged_after_the_guard(tmp_path):
    before = h5py.File.__init__, h5py.File.close
    with guard():
        with h5py.File(tmp_path / "a.h5", "w") as file:
            assert (tmp_path / "a.h5.lock").exists()
            file["x"] = [1]
        assert not (tmp_path / "a.h5.lock").exists()
        assert h5py.File.__init__ is not before[0]
        still_open = h5py.File(tmp_path / "b.h5", "w")
    assert (h5py.File.__init__, h5py.File.close) == before
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "b.h5"]
    still_open.close()


def test_dropped_handle_releases_the_sidecar(tmp_path):
    with guard():
        h5py.File(tmp_path / "a.h5", "w")
        assert not (tmp_path / "a.h5.lock").exists()
        h5py.File(tmp_path / "a.h5", "w").close()


@pytest.mark.parametrize(("theirs", "ours"), [("r", "a"), ("r", "r+"), ("r+", "r")])
def test_held_lock_names_its_holder(tmp_path, theirs, ours):
    path = made(tmp_path)
    child = hold(path, theirs)
    try:
        with guard():
            with pytest.raises(LockTimeoutError, match=f"pid {child.pid}") as error:
                h5py.File(path, ours)
            with pytest.raises(BlockingIOError):  # what a program of h5py waits for
                h5py.File(path, ours)
            with pytest.raises(FileNotFoundError):
                h5py.File(tmp_path / "none.h5", "r")
    finally:
        let_go(child)
    assert "\n" not in str(error.value)
    assert error.value.holder["pid"] == child.pid
    again = pickle.loads(pickle.dumps(error.value))
    assert (type(again), again.errno, again.path) == (type(error.value), errno.EAGAIN, str(path))
