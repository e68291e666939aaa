"""Environments of the peers: a venv each, over the environment of a framework.

The frameworks are those of ``make frameworks``, so that one installation of PyTorch serves many peers. A peer
that does not install has a reason instead, which its rows show.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from benchmarks import ROOT

__all__ = ["PEERS", "NotInstalledError", "installed", "python_of"]

# Program: environments of frameworks below it, and what pip installs over them.
PEERS: dict[str, tuple[str, str]] = {
    "dali": ("torch", "nvidia-dali-cuda120"),
    "grain_arrayrecord": ("jax", "pillow"),
    "jax": ("jax", ""),
    "litdata": ("torch", "litdata"),
    "pytables": ("", "tables"),
    "ray": ("data tf", ""),
    # It requires torch 2.2.0 and NumPy 1.24; both are near enough in the environment below it.
    "rustfrecord": ("torch-oldest", "--no-deps rustfrecord"),
    "spdl": ("torch", "spdl"),
    "streaming": ("torch", "mosaicml-streaming"),
    "tensorflow": ("tf", ""),
    "tfdata": ("tf", ""),
    "torch": ("torch", ""),
    "vahidk": ("torch", ""),
    "webdataset": ("torch", "webdataset"),
    "zarr": ("", "zarr"),
}


class NotInstalledError(Exception):
    """A peer, or the framework below it, is not installed; the message is the reason."""


def installed(program: str) -> bool:
    """Return whether a program runs without an installation before it."""
    name = program.rpartition(".")[2]
    below, packages = PEERS.get(name, ("", ""))
    if packages or " " in below:
        return (_folder(name) / "complete").exists()
    return all(python.exists() for python in _below(below))


@functools.cache
def python_of(program: str) -> str:
    """Return the interpreter of a program; make its environment if there is none.

    Parameters
    ----------
    program : str
        Path of a module in this folder, such as "peers.ray". What is not in `PEERS` runs in this interpreter.

    Raises
    ------
    NotInstalledError
    """
    name = program.rpartition(".")[2]
    below, packages = PEERS.get(name, ("", ""))
    pythons = _below(below)
    for python in pythons:
        if not python.exists():
            raise NotInstalledError(f"{python.parents[1].name} is missing: make frameworks")
    if not packages and len(pythons) == 1:
        return str(pythons[0])
    folder = _folder(name)
    if not folder.exists():
        _make(folder, pythons, packages.split())
    if (reason := folder / "reason").exists():
        raise NotInstalledError(reason.read_text(encoding="utf-8").strip())
    return str(folder / "bin/python")


def _below(names: str) -> list[Path]:
    return [ROOT / f".venv-{name}/bin/python" for name in names.split()] or [Path(sys.executable)]


def _folder(name: str) -> Path:
    return ROOT / f".venv-peer-{name}"


def _make(folder: Path, below: list[Path], packages: list[str]) -> None:
    print(f"making {folder.name}", flush=True)
    subprocess.run([below[0], "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    site = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own, *others = (subprocess.check_output([one, "-c", site], text=True) for one in (python, *below))
    Path(own.strip(), "below.pth").write_text("".join(others), encoding="utf-8")
    if packages:
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [
                line.strip() for line in done.stderr.splitlines() if "Error: " in line or "ERROR: " in line
            ]
            reason = f"does not install: {(errors or [done.stderr])[0][-250:]}"
            (folder / "reason").write_text(reason, encoding="utf-8")
            return
    (folder / "complete").touch()
