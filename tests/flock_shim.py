"""A C library that makes ``flock`` fail, do nothing or wait for ever, as on file systems without locks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

_SOURCE = r"""
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int flock(int fd, int operation) {
    const char *code = getenv("FLOCK_ERRNO");
    (void)fd; (void)operation;
    if (code == NULL || atoi(code) == 0) return 0;   /* answers yes and does nothing */
    while (atoi(code) < 0) pause();
    errno = atoi(code);
    return -1;
}
"""


def flock_environment(folder: Path, number: int) -> dict[str, str]:
    """Return environment variables under which every ``flock`` fails with `number`.

    With 0 it does nothing, with -1 it waits for ever.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    library = folder / "flock.so"
    if not library.exists():
        source = folder / "flock.c"
        source.write_text(_SOURCE)
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return {"LD_PRELOAD": str(library), "FLOCK_ERRNO": str(number)}
