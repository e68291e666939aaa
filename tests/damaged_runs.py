"""Run folders with known rows, and damage of their files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

ROWS = 3


def make_run(run: Path, ranks: int, commits: int) -> dict[tuple[int, int], Path]:
    """Let ranks commit rows at the steps 10, 20, …; return the segments by rank and number.

    The rows of each commit have its rank and number: of "x" plain, of "z" compressed, of "t" as text.
    """
    for rank in range(ranks):
        with WorkerFile(run, World(rank=rank, size=ranks), durable=False) as out:
            out.declare("z", "i8", (2,), compression="gzip", chunk_rows=2)
            for number in range(commits):
                rows = rows_of(rank, number)
                out.append("x", rows)
                out.append("z", np.stack([rows, rows], axis=1))
                out.append("t", [str(one) for one in rows])
                out.put(f"v{number}", f"{rank}, {number}")
                receipt = {"id": f"loader of {rank}", "rank": rank, "number": number}
                out.commit(step=10 * (number + 1), receipt=receipt)
    return segments_of(run)


def segments_of(run: Path) -> dict[tuple[int, int], Path]:
    """Return the files of a run by rank and number in their names."""
    paths = sorted(run.glob("rank-*/*.h5"))
    return {(int(path.parent.name[5:]), int(path.name[:8])): path for path in paths}


def rows_of(rank: int, number: int) -> np.ndarray:
    """Return the rows of "x" of one commit."""
    return 1000 * rank + 10 * number + np.arange(ROWS)


def read_merged(path: Path) -> set[tuple[int, int]]:
    """Return the commits in a merged file, all of whose rows must be there once and with their provenance."""
    found = []
    with h5py.File(path) as file:
        for part in file["_provenance"][:]:
            first, stop = part["first_row"], part["first_row"] + part["rows"]
            name = part["dataset"].decode()
            if name not in ("x", "z", "t") or not part["rows"]:
                continue
            rows = file[name].asstr()[first:stop].astype(int) if name == "t" else file[name][first:stop]
            rank, number = int(part["rank"]), int(part["step"]) // 10 - 1
            expected = rows_of(rank, number)
            assert (expected == rows.T).all() and len(rows) == ROWS, (name, rank, number, rows)
            found.append((name, rank, number))
        for name in ("x", "z", "t"):
            commits = [one[1:] for one in found if one[0] == name]
            assert len(file[name]) == ROWS * len(commits) == ROWS * len(set(commits))
    assert len(set(found)) == len(found) == 3 * len({one[1:] for one in found})
    return {one[1:] for one in found}


def damage_rows(path: Path) -> None:
    """Change rows of "x" in a segment of `make_run`."""
    rows = rows_of(int(path.parent.name[5:]), int(path.name[:8]))
    data = path.read_bytes()
    at = data.index(rows.tobytes())
    path.write_bytes(data[:at] + b"\x77" * 9 + data[at + 9 :])


def tree(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder, by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
