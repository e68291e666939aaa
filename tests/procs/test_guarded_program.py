"""A program under ``python -m shardkeep.guard`` is what it is without: arguments, path, traceback, end.

Covers `shardkeep.guard`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import zipfile

import pytest

SEES = """
import sys
def f(x: int): pass
print(sys.argv, sys.path[0], __name__, globals().get("__file__"), __package__, __spec__ and __spec__.name)
print(sorted(set(globals()) - {"__annotations__", "__cached__"}), type(__builtins__))
print(f.__annotations__, sys.modules["__main__"].f is f, type(__loader__).__name__, type(__loader__) is type)
"""

FAILS = """
import sys
def inner():
    raise KeyError("x")
try:
    inner()
except KeyError as error:
    raise ValueError("y") from error
"""

ENDS = {
    "error": FAILS,
    "syntax": "def f(:\n",
    "exit": "import sys; sys.exit(7)",
    "interrupt": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda k, e, at: print(k, at.tb_frame.f_code.co_name)\n1/0",
    "atexit": "import atexit, sys; atexit.register(lambda: print('bye', __name__)); sys.exit(3)",
    "shardkeep": "import shardkeep as sk; raise sk.NotFoundError('own')",
}


def ran(folder, *arguments, guarded, **variables):
    command = [sys.executable, *(["-m", "shardkeep.guard"] if guarded else []), *arguments]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )
    # Lines of source are shown by some versions of Python and not by others, as are the frames of runpy.
    said = re.sub(
        r'^    .*\n|^  File "(<frozen runpy>|.*runpy\.py)", .*\n', "", done.stderr, flags=re.MULTILINE
    )
    return done.returncode, done.stdout, said


@pytest.fixture
def programs(tmp_path):
    """Return a folder with a script, a link to it, a package, a folder and an archive that can be run."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "see.py").write_text(SEES)
    (tmp_path / "link.py").symlink_to("real/see.py")
    for package in ("pack", "folder", "pack/sub"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__main__.py").write_text(SEES)
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "sub" / "__init__.py").write_text("")
    (tmp_path / "pack" / "mod.py").write_text(SEES)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", SEES)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ("real/see.py", "a", "-b"),
        ("link.py",),
        ("folder", "-c"),
        ("app.zip", "a"),
        ("-m", "pack.mod", "--warn", "a"),
        ("-mpack.mod",),
        ("-m", "pack"),
        ("-m", "pack.sub", "x"),
        ("-c", SEES, "a", "-m"),
    ],
)
def test_program_sees_its_usual_environment(programs, arguments):
    plain = ran(programs, *arguments, guarded=False)
    assert plain[0] == 0
    assert ran(programs, *arguments, guarded=True) == plain


def test_safe_path_is_respected(programs):
    if sys.version_info < (3, 11):
        pytest.skip("PYTHONSAFEPATH came with Python 3.11")
    plain = ran(programs, "real/see.py", guarded=False, PYTHONSAFEPATH="1")
    assert ran(programs, "real/see.py", guarded=True, PYTHONSAFEPATH="1") == plain


@pytest.mark.parametrize(
    ("end", "how"),
    [*((end, "script") for end in ENDS), ("error", "-c"), ("error", "-m"), ("syntax", "-c"), ("exit", "-m")],
)
def test_exit_codes_of_programs(tmp_path, end, how):
    (tmp_path / "prog.py").write_text(textwrap.dedent(ENDS[end]))
    arguments = {"script": ("prog.py",), "-c": ("-c", ENDS[end]), "-m": ("-m", "prog")}[how]
    plain = ran(tmp_path, *arguments, guarded=False)
    assert ran(tmp_path, *arguments, guarded=True) == plain


def test_failed_import_of_a_package_is_its_own_error(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("import not_there")
    (tmp_path / "pack" / "mod.py").write_text("")
    code, _, said = ran(tmp_path, "-m", "pack.mod", guarded=True)
    assert (code, said.splitlines()[-1]) == (1, "ModuleNotFoundError: No module named 'not_there'")


def test_missing_programs_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    cases = {
        ("missing.py",): (10, "file 'missing.py' does not exist"),
        ("-m", "missing"): (10, "module 'missing' does not exist"),
        ("-m", "pack.missing"): (10, "module 'pack.missing' does not exist"),
        ("-m", "missing.inner"): (10, "module 'missing.inner' does not exist"),
        ("-m", "pack"): (2, "'pack' is a package without a __main__"),
        ("empty",): (2, "'empty' has no __main__ module"),
    }
    for arguments, (wanted, text) in cases.items():
        code, out, said = ran(tmp_path, *arguments, guarded=True)
        assert (code, out) == (wanted, ""), said
        assert said.startswith(f"shardkeep.guard: error: {text}")
        assert said.count("\n") == 1
    for arguments in ((), ("-m",), ("-c",), ("--what",), ("--warn",)):
        code, _, said = ran(tmp_path, *arguments, guarded=True)
        assert (code, said.startswith("usage: "), said.count("\n")) == (2, True, 1)
    assert ran(tmp_path, "--help", guarded=True)[0] == 0


def test_a_thread_that_outlives_the_program_is_guarded(tmp_path):
    body = """
        import threading, h5py
        def work():
            threading.main_thread().join()
            first = h5py.File("a.h5", "w")
            try:
                h5py.File("a.h5", "w")
            except OSError as error:
                print(type(error).__name__)
        threading.Thread(target=work).start()
    """
    (tmp_path / "prog.py").write_text(textwrap.dedent(body))
    code, out, said = ran(tmp_path, "prog.py", guarded=True)
    assert (code, out) == (0, "LockError\n"), said
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "prog.py"]
