"""Sources are looked for where HDF5 looks for them, in its order."""

from __future__ import annotations

import os
import subprocess
import sys

import h5py
import pytest

from shardkeep.hdf5.virtual.source_search import SourceSearch
from tests.waiting import PATIENCE_S

PLACES = ["absolute", "a", "home/b", "home", "cwd", "real"]
# HDF5 reads the variable when it is loaded, so in a child. The file that it read is removed each time.
BODY = """if True:
    import h5py, os, sys
    import shardkeep as sk
    from shardkeep.hdf5.open.handle import recent_files
    path, folder, *places = sys.argv[1:]
    while True:
        recent_files._files.clear()
        with h5py.File(path) as file:
            theirs = int(file["x"][0])
        try:
            with sk.hdf5.open(path) as file:
                ours = int(file["x"][0])
        except sk.NotFoundError:
            ours = -1
        print(theirs, ours)
        if theirs < 0:
            break
        os.unlink(os.path.join(folder, places[theirs], "s.h5"))
"""


def write(path, value: int) -> None:
    os.makedirs(path.parent, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["x"] = [value]


@pytest.mark.parametrize("prefix", ["a", "${ORIGIN}/b"])
@pytest.mark.parametrize("absolute", [False, True])
def test_search_order_is_that_of_hdf5(tmp_path, absolute, prefix):
    """The same source in all places, with another value in each; that which is found is removed."""
    for number, place in enumerate(PLACES):
        write(tmp_path / place / "s.h5", number)
    name = str(tmp_path / "absolute/s.h5") if absolute else "s.h5"
    layout = h5py.VirtualLayout((1,), "i8")
    layout[:] = h5py.VirtualSource(name, "x", (1,))
    with h5py.File(tmp_path / "real/v.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
    os.symlink(tmp_path / "real/v.h5", tmp_path / "home/v.h5")
    env = {**os.environ, "HDF5_VDS_PREFIX": f":{tmp_path / 'a'}" if prefix == "a" else prefix}
    if absolute:  # there HDF5 would look for the last part of the name in it, too
        os.unlink(tmp_path / "cwd/s.h5")
    done = subprocess.run(
        [sys.executable, "-c", BODY, str(tmp_path / "home/v.h5"), str(tmp_path), *PLACES],
        cwd=tmp_path / "cwd",
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    prefixed = 1 if prefix == "a" else 2
    places = [0, prefixed, 3, 5, -1] if absolute else [prefixed, 3, 4, 5, -1]
    assert done.stdout.splitlines() == [f"{place} {place}" for place in places], done.stderr


def test_first_path_needs_no_access_to_the_disk(tmp_path, monkeypatch):
    monkeypatch.delenv("HDF5_VDS_PREFIX", raising=False)
    search = SourceSearch(str(tmp_path / "v.h5"))
    here = os.fsencode(tmp_path)
    assert search.first(b"a/b.h5") == here + b"/a/b.h5"
    assert search.first(b"/a/b.h5") == b"/a/b.h5"
    assert search.first(b".") == search.find(b".") == here + b"/v.h5"
    assert search.find(b"a/\xff.h5") == here + b"/a/\xff.h5"
    monkeypatch.setenv("HDF5_VDS_PREFIX", "/p:${ORIGIN}/q")
    assert SourceSearch(str(tmp_path / "v.h5")).first(b"a.h5") == b"/p/a.h5"
    assert SourceSearch("/v.h5").find(b"not-there.h5") == b"/not-there.h5"
