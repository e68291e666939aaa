from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import Collector, WorkerFile, merge, receipts, verify
from shardkeep.hdf5.storage.names import RESERVED, check_name
from shardkeep.jobs import info
from shardkeep.world import World
from tests.unit.jobs.test_audit import receipt


def users_file(path: Path, *, number: int = 0) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["x"].attrs["_ranks"] = [5, 6, 7]
        file["x"].attrs["_put"] = True
        file["g/y"] = np.arange(3.0)
        file["g"].attrs["_put"] = number
        file.attrs["_ranks"] = 1
        file["_checks/mine"] = np.arange(4)
        file["_collector/clients"] = np.arange(3)
        file["_collector/tails/x"] = np.arange(3)
        file["_provenance"] = np.arange(3)
        file.create_dataset("_receipts", data=["no JSON"], dtype=h5py.string_dtype())


NAMES = ["_checks", "_checks/mine", "_collector", "_collector/clients", "_collector/tails"]
NAMES += ["_collector/tails/x", "_provenance", "_receipts"]
ATTRIBUTES = ["/@_ranks", "g@_put", "x@_put", "x@_ranks"]


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("on_mismatch", ["refuse", "promote"])
def test_user_objects_with_reserved_names_are_reported(mode: str, on_mismatch: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.h5" for number in range(2)]
    for number, path in enumerate(paths):
        users_file(path, number=number)
    with pytest.warns(RuntimeWarning, match="'?_checks/mine'?: has a name that Shardkeep uses"):
        report = merge(paths, tmp_path / "all.h5", mode=mode, on_mismatch=on_mismatch)  # type: ignore[call-overload]
    assert report.left_out == dict.fromkeys(NAMES + ATTRIBUTES, RESERVED)
    assert report.rows == {"x": 6, "g/y": 6}
    assert report.dropped_attributes == {"/": ("_ranks",), "g": ("_put",), "x": ("_put", "_ranks")}
    with h5py.File(tmp_path / "all.h5") as file:
        assert dict(file["x"].attrs) == {}
    assert verify(tmp_path / "all.h5").ok


def test_user_objects_with_reserved_names_are_verified_and_listed(tmp_path: Path) -> None:
    users_file(tmp_path / "x.h5")
    found = verify(tmp_path / "x.h5")
    assert (found.kind, found.ok) == ("hdf5", True)
    assert {one.name for one in info(tmp_path / "x.h5").datasets} >= {"x", "_checks/mine", "_provenance"}
    assert receipts(tmp_path / "x.h5") == []


def test_links_and_types_with_reserved_names_are_reported(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.arange(3)
        file["_receipts"] = h5py.SoftLink("/x")
        file["_provenance"] = np.dtype("f4")
        file["_collector/link"] = h5py.ExternalLink("other.h5", "x")
    with pytest.warns(RuntimeWarning, match="_receipts"):
        report = merge(tmp_path / "x.h5", tmp_path / "all.h5")
    assert sorted(report.left_out) == ["_collector", "_collector/link", "_provenance", "_receipts"]


def test_merged_file_can_be_merged_again(tmp_path: Path) -> None:
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as out:
            out.append("x", [0.5])
            out.put("value", [rank])
            out.put("same", [7])
            out.commit(step=1, receipt=receipt(rank))
    merge(tmp_path / "run", tmp_path / "one.h5")
    report = merge(tmp_path / "one.h5", tmp_path / "two.h5")
    assert (report.left_out, report.dropped_attributes) == ({}, {})
    assert len(receipts(tmp_path / "two.h5")) == 2
    with h5py.File(tmp_path / "two.h5") as file:
        assert file["value"].attrs["_ranks"].tolist() == [0, 1]
        assert file["same"].attrs["_put"]
    twice = merge([tmp_path / "one.h5", tmp_path / "two.h5"], tmp_path / "all.h5")
    assert (twice.left_out, twice.dropped_attributes) == ({}, {})


def test_user_object_in_the_collector_group_is_reported(tmp_path: Path) -> None:
    with (
        Collector(tmp_path / "x.h5", durability="flush") as collector,
        collector.connect(World(0, 1)) as client,
    ):
        client.append("x", [0.5])
    assert merge(tmp_path / "x.h5", tmp_path / "one.h5").left_out == {}
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file["_collector/mine"] = np.arange(3)
    with pytest.warns(RuntimeWarning, match="_collector/mine"):
        report = merge(tmp_path / "x.h5", tmp_path / "two.h5")
    assert report.left_out == {"_collector/mine": RESERVED}


@pytest.mark.parametrize("name", ["a", "a/b/c", "ä ö", "a.b", "...", "%b"])
def test_valid_dataset_names(name):
    assert check_name(name, {"other": 1}) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "a/..",
        "a\0b",
        3,
        b"a",
        "_commit",
        "_provenance/x",
        "_receipts",
        None,
    ],
)
def test_invalid_dataset_names_are_refused(name):
    with pytest.raises(SchemaError):
        check_name(name, {})


def test_name_cannot_be_dataset_and_group():
    with pytest.raises(SchemaError, match="at once"):
        check_name("a", {"a/b": 1})
    with pytest.raises(SchemaError, match="at once"):
        check_name("a/b/c", {"a/b": 1})
