"""`hdf5.open` between real processes: fork, spawn, pickle, locks, limits.

Covers `shardkeep.hdf5.locking.open_file_budget`.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import LockError, LockTimeoutError
from tests.flock_shim import flock_environment
from tests.waiting import PATIENCE_S

HEAD = """
import sys, os, h5py, warnings, numpy as np, shardkeep as sk
def take_all_descriptors():
    try:
        while True:
            os.open("/dev/null", os.O_RDONLY)
    except OSError:
        pass
"""


def run(folder: Path, body: str, *arguments: str, limit: int = 0, **variables: str):
    script = HEAD + textwrap.dedent(body)
    prefix = ["bash", "-c", f'ulimit -n {limit}; exec "$@"', "bash"] if limit else []
    return subprocess.run(
        [*prefix, sys.executable, "-c", script, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **variables},
    )


def hold(folder: Path, opened: str) -> subprocess.Popen[bytes]:
    """Start a process that keeps a file open, opened by an expression."""
    body = f"import h5py, sys, shardkeep as sk; f = {opened}; print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", body], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"1\n"
    return child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["g/x"] = np.arange(2000).reshape(500, 4)
        file["g/x"].attrs["unit"] = "m"
        file["names"] = ["a", "b"]
    return tmp_path / "a.h5"


def _total(dataset) -> int:
    return int(dataset[:].sum())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_objects_cross_into_processes(path, method):
    file = sk.hdf5.open(path)
    dataset, group = file["g/x"], file["g"]
    assert dataset[0, 1] == 1
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_total, [dataset, group["x"], file["g/x"]]) == [1999000] * 3
    assert dataset[1, 1] == 5
    file.close()


def test_a_relative_path_survives_another_folder(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    whole = pickle.dumps(sk.hdf5.open("a.h5"))
    monkeypatch.chdir("/")
    with pickle.loads(whole) as file:
        assert file["names"].asstr()[:].tolist() == ["a", "b"]


# Like a loader with workers: the parent opens the file, workers index it again and again.
def test_forked_workers_and_parent_read_at_once(path):
    body = """
        f = sk.hdf5.open("a.h5")
        x = f["g/x"]
        children = []
        for child in range(4):
            begin = x[child]
            pid = os.fork()
            if pid == 0:
                for i in range(500):
                    assert (x[i] == np.arange(4 * i, 4 * i + 4)).all()
                sys.exit(0)
            children.append(pid)
        for i in range(500):
            assert (x[i] == np.arange(4 * i, 4 * i + 4)).all()
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        # The children's ends must not have given the parent's lock back.
        import fcntl
        other = os.open("a.h5", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("still locked")
    """
    done = run(path.parent, body)
    assert (done.returncode, done.stdout) == (0, "still locked\n"), done.stderr


WRITER = """
    how = sys.argv[1]
    f = sk.hdf5.open("b.h5", "w")
    x = f.create_dataset("x", (50,), maxshape=(None,), chunks=(10,), dtype="i8", data=np.arange(50))
    if how == "flushed":
        f.flush()
    child = os.fork()
    if child == 0:
        if how == "use":
            for use in (lambda: x[:], lambda: f.create_group("g"), f.flush, lambda: f["x"].resize(1, 0)):
                try:
                    use()
                except sk.LockError as error:
                    assert "forked child cannot" in str(error) or "a forked child" in str(error), error
                else:
                    os._exit(3)
        if how == "close":
            f.close()
        if how == "del":
            del f, x
        if how == "own":
            with sk.hdf5.open("own.h5", "w") as own:
                own["y"] = [1]
        os.read(0, 1)
        sys.exit(0)
    x.resize(10_050, 0)
    x[50:] = np.arange(10_000)
    f.close()
    os.write(1, b"closed")
    assert os.waitpid(child, 0)[1] == 0
    with sk.hdf5.open("b.h5", "r+") as f:
        assert len(f["x"]) == 10_050
        assert (f["x"][50:] == np.arange(10_000)).all()
"""


@pytest.mark.parametrize("how", ["exit", "flushed", "use", "close", "del", "own"])
def test_a_forked_child_never_touches_the_writer(tmp_path, how):
    script = "import sys, os, numpy as np, shardkeep as sk\n" + textwrap.dedent(WRITER)
    child = subprocess.Popen(
        [sys.executable, "-c", script, how],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.read(6) == b"closed"
    said = child.communicate(b"1", timeout=PATIENCE_S)[1]
    assert (child.returncode, said) == (0, b"")
    assert not (tmp_path / "b.h5.lock").exists()


def test_a_writer_cannot_be_pickled(tmp_path):
    with sk.hdf5.open(tmp_path / "b.h5", "w") as file:
        file["x"] = [1]
        for one in (file, file["x"]):
            with pytest.raises(LockError, match="cannot be pickled: pass its path"):
                pickle.dumps(one)


@pytest.mark.parametrize("other", ["h5py.File('a.h5', 'r+')", "sk.hdf5.open('a.h5', 'a')"])
@pytest.mark.parametrize("mode", ["r", "r+", "a", "w"])
def test_lock_conflict_names_the_holder_before_a_byte_is_touched(path, other, mode):
    child = hold(path.parent, other)
    whole = path.read_bytes()
    try:
        with pytest.raises(LockTimeoutError, match=f"pid {child.pid} on host") as caught:
            sk.hdf5.open(path, mode)
        assert caught.value.holder["pid"] == child.pid
        assert "import h5py, sys" in caught.value.holder["command"]
        assert caught.value.holder["since"] > 0
        assert path.read_bytes() == whole
        with pytest.raises(LockTimeoutError, match=r"waited [1-9]\d*\.\d s: wait for it"):
            sk.hdf5.open(path, mode, timeout_s=1.0)
        # Calls without timeout_s do not name it.
        with pytest.raises(LockTimeoutError, match="cannot be read now: wait for it and try again, end it"):
            sk.hdf5.verify(path)
    finally:
        child.communicate(timeout=PATIENCE_S)
    with sk.hdf5.open(path, mode, timeout_s=PATIENCE_S):
        pass


@pytest.mark.parametrize("mode", ["r+", "a", "w"])
def test_reader_excludes_writers(path, mode):
    child = hold(path.parent, "h5py.File('a.h5')")
    size = path.stat().st_size
    try:
        with pytest.raises(LockTimeoutError, match=f"pid {child.pid}"):
            sk.hdf5.open(path, mode)
        assert path.stat().st_size == size
        with sk.hdf5.open(path) as file:
            assert len(file["g/x"]) == 500
    finally:
        child.communicate(timeout=PATIENCE_S)


def test_a_killed_writer_leaves_no_lock(path):
    child = hold(path.parent, "sk.hdf5.open('a.h5', 'r+')")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with sk.hdf5.open(path, "r+") as file:
        file["y"] = [1]
    assert os.listdir(path.parent) == ["a.h5"]


def test_appending_processes_wait_for_each_other(tmp_path):
    body = """
        rank = sys.argv[1]
        for i in range(15):
            with sk.hdf5.open("a.h5", "a", timeout_s=200) as f:
                f[f"{rank}/{i}"] = np.full(100, int(rank))
    """
    script = "import sys, numpy as np, shardkeep as sk\n" + textwrap.dedent(body)
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(rank)], cwd=tmp_path) for rank in range(3)
    ]
    assert [child.wait(PATIENCE_S) for child in children] == [0, 0, 0]
    with sk.hdf5.open(tmp_path / "a.h5") as file:
        for rank in range(3):
            assert len(file[str(rank)]) == 15
            assert all((one[:] == rank).all() for one in file[str(rank)].values())


def test_six_hundred_files_under_a_limit_of_128(tmp_path):
    with h5py.File(tmp_path / "0.h5", "w") as file:
        file.create_dataset("x", data=np.arange(100), chunks=(50,), compression="gzip")
    whole = (tmp_path / "0.h5").read_bytes()
    for i in range(1, 600):
        (tmp_path / f"{i}.h5").write_bytes(whole)
    body = """
        files = [sk.hdf5.open(f"{i}.h5") for i in range(600)]
        sets = [f["x"] for f in files]
        assert all(one[7] == 7 for one in sets)
        assert len(os.listdir("/proc/self/fd")) < 30, len(os.listdir("/proc/self/fd"))
        with open("/dev/null"), open("0.h5", "rb"):
            assert all(f["x"].attrs.keys() == set() for f in files[:50])
        for f in files:
            f.close()
        assert len(os.listdir("/proc/self/fd")) < 10
    """
    done = run(tmp_path, body, limit=128)
    assert done.returncode == 0, done.stderr


def test_no_descriptor_at_all(path):
    body = """
        f = sk.hdf5.open("a.h5")
        g = sk.hdf5.open("a.h5")
        take_all_descriptors()
        try:
            sk.hdf5.open("a.h5")["g/x"]   # one of the others is closed for it
            f["g/x"][:], g["g/x"][:]
        except sk.BudgetError as error:
            print(error)
    """
    done = run(path.parent, body, limit=64)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_garbage_collector_may_close_the_last_file(path):
    body = """
        import gc
        from shardkeep.hdf5.locking.open_file_budget import OpenFileBudget
        gc.disable()
        sk.hdf5.open("a.h5")
        take_all_descriptors()
        close_all = OpenFileBudget.close_all
        OpenFileBudget.close_all = lambda files: (gc.collect(), close_all(files))[1]
        print(len(sk.hdf5.open("a.h5")["g/x"]))
    """
    done = run(path.parent, body, limit=64)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


NUMBERS = [5, 11, 37, 95, 524]


@pytest.mark.parametrize("number", NUMBERS)
def test_failing_flock(path, number, tmp_path_factory):
    body = """
        import signal
        warnings.simplefilter("error")
        number = int(os.environ["FLOCK_ERRNO"])
        whole = open("a.h5", "rb").read()
        for mode in ("r+", "a", "w"):
            try:
                sk.hdf5.open("a.h5", mode)
            except sk.LockError as error:
                assert isinstance(error, sk.LockTimeoutError) == (number == 11), error
            else:
                sys.exit(3)
        assert open("a.h5", "rb").read() == whole
        try:
            sk.hdf5.open("a.h5")
        except sk.LockTimeoutError as error:
            assert number == 11
            sys.exit(0)
        except RuntimeWarning as warning:
            assert "is read without a lock" in str(warning), warning
            assert "make sure that no process writes it" in str(warning)
        else:
            sys.exit(4)
        with sk.hdf5.open("a.h5") as f:
            assert f["g/x"][1, 1] == 5
            assert f.locking == "none (the file system refuses locks)", f.locking
        # Where the variable insists on locks there is no way around them.
    """
    environment = flock_environment(tmp_path_factory.getbasetemp(), number)
    done = run(path.parent, body, **environment)
    assert done.returncode == 0, (done.stdout, done.stderr)
    if number != 11:
        body = """
            try:
                sk.hdf5.open("a.h5")
            except sk.LockError as error:
                print("refuses locks" in str(error), "HDF5_USE_FILE_LOCKING=FALSE" in str(error), error.errno)
        """
        done = run(path.parent, body, HDF5_USE_FILE_LOCKING="TRUE", **environment)
        assert done.stdout == f"True True {number}\n", done.stderr


def test_flock_without_effect(path, tmp_path_factory):
    body = """
        for mode in ("r+", "w"):
            try:
                sk.hdf5.open("a.h5", mode)
            except sk.LockError as error:
                print("two holders at once" in str(error))
        print(len(sk.hdf5.open("a.h5")["g/x"]))
    """
    done = run(path.parent, body, **flock_environment(tmp_path_factory.getbasetemp(), 0))
    assert done.stdout == "True\nTrue\n500\n", done.stderr


@pytest.mark.parametrize(
    ("value", "effect"),
    [("FALSE", "off"), ("TRUE", "on"), ("BEST_EFFORT", "on"), ("", "asked"), ("false", "asked")],
)
def test_variable_is_honoured_and_reported(path, value, effect):
    body = """
        print(sk.hdf5.locking_mode().effect, sk.hdf5.locking_mode().stale)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with sk.hdf5.open("a.h5") as f:
                print(f.locking)
            with sk.hdf5.open("a.h5", "r+") as f:
                print(f.locking)
                try:
                    sk.hdf5.open("a.h5", "w")
                except sk.LockTimeoutError as error:
                    print(error.holder["pid"] == os.getpid())
        print([str(one.message)[-21:] for one in caught])
    """
    done = run(path.parent, body, **({"HDF5_USE_FILE_LOCKING": value} if value else {}))
    lines = done.stdout.splitlines()
    assert lines[0] == f"{effect} False", done.stderr
    assert lines[3] == "True"
    if effect == "off":
        assert lines[1:3] == [
            "none (HDF5_USE_FILE_LOCKING switches locks off)",
            "sidecar only (HDF5_USE_FILE_LOCKING switches flock off)",
        ]
        assert lines[4] == "['o; unset the variable']"
    else:
        assert lines[1:3] == ["flock, shared", "flock, exclusive"]
        assert lines[4] == ("['BEST_EFFORT, FALSE, 0']" if value == "false" else "[]")


def test_truncation_without_locks_checks_open_files(path):
    child = hold(path.parent, "h5py.File('a.h5')")
    size = path.stat().st_size
    try:
        body = """
            warnings.simplefilter("ignore")
            try:
                sk.hdf5.open("a.h5", "w")
            except sk.LockTimeoutError as error:
                print(error)
        """
        done = run(path.parent, body, HDF5_USE_FILE_LOCKING="FALSE")
        assert f"pid {child.pid}" in done.stdout
        assert path.stat().st_size == size
    finally:
        child.communicate(timeout=PATIENCE_S)


def test_variable_set_too_late_is_reported(path):
    body = """
        os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
        warnings.simplefilter("always")
        sk.hdf5.open("a.h5")
        print(sk.hdf5.locking_mode())
    """
    done = run(path.parent, body)
    assert "HDF5_USE_FILE_LOCKING=FALSE was set after h5py was imported and has no effect" in done.stderr
    line = HEAD.count("\n") + 4
    assert done.stderr.startswith(f"<string>:{line}: "), "the line of the program, not one of ours"
    assert "was set after HDF5 was loaded and has no effect" in done.stdout


def test_a_full_disk_at_close(tmp_path):
    body = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        f = sk.hdf5.open("b.h5", "w")
        f.create_dataset("x", (100, 1000), chunks=(1, 1000), dtype="f8")
        for i in range(100):
            f["x"][i] = i
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        try:
            f.close()
        except sk.DurabilityError as error:
            print("refused")
        print(os.path.exists("b.h5.lock"))
    """
    done = run(tmp_path, body)
    assert (done.returncode, done.stdout) == (0, "refused\nFalse\n"), done.stderr
