"""Check of the versions of installed libraries, without importing them."""

from __future__ import annotations

import contextlib
import functools
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from shardkeep.diagnosis.examination.report import Fact, Problem, Severity
from shardkeep.diagnosis.examination.software.hdf5 import examine_hdf5, load_hdf5
from shardkeep.diagnosis.examination.subject import Subject

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["KnownFault", "known_faults", "libraries"]

_CHECK = "versions"
_NAMES = (
    "shardkeep",
    "numpy",
    "h5py",
    "tables",
    "netCDF4",
    "tensorflow",
    "tensorflow-gpu",
    "tensorflow-estimator",
    "keras",
    "tensorboard",
    "protobuf",
    "torch",
    "jax",
)
_TITLES = {"hdf5": "HDF5"}
# Distributions with the same package.
_OTHER_NAMES = {"tensorflow": ("tensorflow-cpu", "tensorflow-rocm", "tf-nightly")}


@dataclass(frozen=True)
class KnownFault:
    """A fault of some versions; the fields are those of ``known_faults.toml``."""

    name: str
    when: Mapping[str, str]
    severity: Severity
    what: str
    fix: str
    source: str
    command: str | None = None

    def applies(self, installed: Mapping[str, str]) -> bool:
        """Return True if all distributions of the fault are installed in these versions."""
        return all(
            name in installed and _allows(SpecifierSet(wanted), installed[name])
            for name, wanted in self.when.items()
        )


@functools.cache
def known_faults() -> tuple[KnownFault, ...]:
    """Return the table of faults."""
    text = files(__package__).joinpath("known_faults.toml").read_text(encoding="utf-8")
    return tuple(KnownFault(name, **values) for name, values in tomllib.loads(text).items())


def libraries(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield versions of libraries, known faults of them, conflicts, and what is known of HDF5."""
    installed = {name: found for name in _NAMES if (found := _version(name)) is not None}
    yield Fact(_CHECK, "Python", platform.python_version())
    for name, found in installed.items():
        yield Fact(_CHECK, name, found)
    loaded = load_hdf5(subject)
    yield from examine_hdf5(loaded, subject)
    if "hdf5" in loaded:
        installed["hdf5"] = loaded["hdf5"]
    yield from _faults(installed)
    yield from _conflicts(installed)


def _version(name: str) -> str | None:
    for one in (name, *_OTHER_NAMES.get(name, ())):
        with contextlib.suppress(PackageNotFoundError):
            # None if the remains of an installation have no metadata.
            if found := version(one):
                return found
    return None


def _faults(installed: Mapping[str, str]) -> Iterator[Problem]:
    for one in known_faults():
        if one.applies(installed):
            found = ", ".join(f"{_TITLES.get(name, name)} {installed[name]}" for name in one.when)
            yield Problem(one.severity, _CHECK, f"{found}: {one.what} ({one.source})", one.fix, one.command)


def _conflicts(installed: Mapping[str, str]) -> Iterator[Problem]:
    """Yield requirements of these libraries that the others do not meet, as ``pip check`` does for all."""
    for name in installed:
        for text in _requirements(name):
            wanted = _requirement(text)
            if wanted is None or wanted.name not in installed:
                continue
            other, specifiers = wanted.name, wanted.specifier
            if _allows(specifiers, installed[other]):
                continue
            yield Problem(
                "warning",
                _CHECK,
                f"{name} {installed[name]} requires {other} {specifiers}; {installed[other]} is installed",
                "install versions that fit, in a new environment if two packages disagree",
                f"python -m pip install '{other}{specifiers}'",
            )


def _requirements(name: str) -> list[str]:
    for one in (name, *_OTHER_NAMES.get(name, ())):
        with contextlib.suppress(PackageNotFoundError):
            return requires(one) or []
    return []


def _requirement(text: str) -> Requirement | None:
    """Return a requirement; None if it does not apply here, or is not understood."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return None
    return found if found.marker is None or found.marker.evaluate({"extra": ""}) else None


def _allows(specifiers: SpecifierSet, version: str) -> bool:
    """Return True if a version satisfies specifiers, or has another form, as own builds may."""
    try:
        return specifiers.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True
