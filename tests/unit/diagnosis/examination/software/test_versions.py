"""Known faults and conflicts of installed versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardkeep.diagnosis.examination.software import hdf5, versions
from tests.described_machine import DescribedMachine


class Environment:
    """Installed distributions with their requirements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.installed: dict[str, str] = {}
        self.requires: dict[str, list[str]] = {}
        self.hdf5: dict[str, str] = {}
        self.machine = DescribedMachine(root)
        monkeypatch.setattr(versions, "version", self._version)
        monkeypatch.setattr(versions, "requires", lambda name: self.requires.get(name))
        monkeypatch.setattr(versions, "load_hdf5", lambda subject: self.hdf5)
        monkeypatch.setattr(hdf5, "_copies", lambda: iter(()))

    def _version(self, name: str) -> str:
        if name not in self.installed:
            raise versions.PackageNotFoundError(name)
        return self.installed[name]

    def problems(self, **installed: str) -> list[str]:
        self.installed = {name.replace("_", "-"): version for name, version in installed.items()}
        found, self.facts = self.machine.examine(versions.libraries)
        self.found = found
        return [f"{one.severity}: {one.evidence}" for one in found]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Environment:
    return Environment(monkeypatch, tmp_path)


def test_every_fault_has_a_source_and_a_fix_and_known_names() -> None:
    for one in versions.known_faults():
        assert one.severity in ("error", "warning", "note"), one.name
        assert set(one.when) <= {*versions._NAMES, "hdf5"}, one.name
        assert all(re.fullmatch(r"([<>=!]=?[0-9][0-9.*]*,?)+", text) for text in one.when.values()), one.name
        for part in one.source.split(", "):
            assert re.fullmatch(r"measured|[\w-]+/[\w.-]+#\d+|https://\S+", part), one.name
        assert len(one.what) < 150 and not one.what.endswith("."), one.name


# The installed versions: what applies, what does not.
CASES = {
    "tensorflow-numpy": (
        {"tensorflow": "2.17.1", "numpy": "2.0.2"},
        {"tensorflow": "2.18.0", "numpy": "2.0.2"},
    ),
    "torch-numpy": ({"torch": "2.2.2+cu118", "numpy": "2.1.0"}, {"torch": "2.2.2", "numpy": "1.26.4"}),
    "h5py-numpy": ({"h5py": "3.10.0", "numpy": "2.0.0"}, {"h5py": "3.11.0", "numpy": "2.0.0"}),
    "tables-numpy": ({"tables": "3.9.2", "numpy": "2.0.2"}, {"tables": "3.10.1", "numpy": "2.0.2"}),
    "tensorflow-protobuf": (
        {"tensorflow": "2.8.0", "protobuf": "4.21.0"},
        {"tensorflow": "2.8.0", "protobuf": "3.20.3"},
    ),
    "tensorflow-protobuf-warnings": (
        {"tensorflow": "2.19.0", "protobuf": "6.31.1"},
        {"tensorflow": "2.19.0", "protobuf": "5.29.5"},
    ),
    "tensorflow-estimator": (
        {"tensorflow": "2.16.1", "tensorflow-estimator": "2.15.0"},
        {"tensorflow": "2.15.0", "tensorflow-estimator": "2.15.0"},
    ),
    "tensorflow-exit": ({"tensorflow": "2.9.3"}, {"tensorflow": "2.12.0"}),
    "tensorflow-twice": ({"tensorflow": "2.5.0", "tensorflow-gpu": "2.2.0"}, {"tensorflow": "2.5.0"}),
    "hdf5-crash-at-exit": ({"hdf5": "1.14.2"}, {"hdf5": "1.14.4"}),
    "hdf5-scale-offset": ({"hdf5": "1.14.6"}, {"hdf5": "1.14.4"}),
    "hdf5-2-layout": ({"hdf5": "2.0.0"}, {"hdf5": "2.1.0"}),
    "hdf5-chunk-offsets": ({"hdf5": "1.14.6"}, {"hdf5": "1.12.3"}),
}


def test_every_fault_has_a_case() -> None:
    assert CASES.keys() == {one.name for one in versions.known_faults()}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_applies_to_its_versions_only(name: str) -> None:
    fault = next(one for one in versions.known_faults() if one.name == name)
    bad, good = CASES[name]
    assert fault.applies(bad) and not fault.applies(good)
    assert not fault.applies({})


def test_a_fault_is_reported_with_the_versions_that_have_it(environment: Environment) -> None:
    (text,) = environment.problems(tensorflow="2.17.1", numpy="2.0.2", protobuf="4.25.3")
    assert text.startswith("error: tensorflow 2.17.1, numpy 2.0.2: ")
    assert "(tensorflow/tensorflow#67291)" in text
    assert environment.facts["tensorflow"] == "2.17.1"


def test_the_cpu_build_of_tensorflow_counts(environment: Environment) -> None:
    (text,) = environment.problems(tensorflow_cpu="2.17.1", numpy="2.0.2")
    assert "tensorflow 2.17.1" in text


def test_a_requirement_that_is_not_met_is_a_warning(environment: Environment) -> None:
    environment.requires["tensorflow"] = ["protobuf<6.0.0,>=5.28.0", "numpy>=1.26", "gast>=0.2.1"]
    texts = environment.problems(tensorflow="2.20.0", numpy="2.0.2", protobuf="6.31.1")
    assert texts == ["warning: tensorflow 2.20.0 requires protobuf <6.0.0,>=5.28.0; 6.31.1 is installed"]
    assert environment.found[0].command == "python -m pip install 'protobuf<6.0.0,>=5.28.0'"


def test_installed_versions_that_fit_are_healthy(environment: Environment) -> None:
    assert environment.problems(tensorflow="2.21.0", numpy="2.2.6", protobuf="6.31.1", torch="2.9.0") == []


def test_the_version_of_hdf5_is_that_of_the_loaded_library(environment: Environment) -> None:
    environment.hdf5 = {"h5py": "3.11.0", "hdf5": "1.14.2", "effect": "asked"}
    texts = environment.problems(h5py="3.11.0", numpy="1.26.4")
    assert any(text.startswith("warning: HDF5 1.14.2: a program crashes at its end") for text in texts)


@pytest.mark.parametrize(
    ("requirement", "installed"),
    [
        ("numpy<2; extra == 'test'", "2.0.0"),
        ("numpy<2; python_version < '3'", "2.0.0"),
        ("numpy (", "2.0.0"),
        ("numpy>=2", "built here"),
        ("numpy>=2.0.0rc1", "2.0.0rc2"),
        ("numpy>=1.26", "2.0.0+local"),
    ],
)
def test_a_requirement_that_does_not_apply_or_is_not_understood_is_passed_over(
    environment: Environment, requirement: str, installed: str
) -> None:
    environment.requires["torch"] = [requirement]
    assert environment.problems(torch="2.9.0", numpy=installed) == []
