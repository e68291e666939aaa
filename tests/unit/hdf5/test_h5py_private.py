"""Private names of h5py on which Shardkeep depends, tried with `TRIED_VERSIONS`."""

from __future__ import annotations

import h5py
import pytest

from shardkeep.errors import MissingExtraError
from shardkeep.hdf5 import guard, h5py_private
from shardkeep.hdf5 import open as hopen


@pytest.fixture
def unchecked():
    h5py_private.check_h5py.cache_clear()
    yield
    h5py_private.check_h5py.cache_clear()


def test_installed_h5py_was_tried():
    if h5py.__version__ not in h5py_private.TRIED_VERSIONS:
        tried = ", ".join(h5py_private.TRIED_VERSIONS)
        pytest.skip(
            f"h5py {h5py.__version__} is not one of {tried}: run tests/unit/hdf5 with it, then add it"
        )
    h5py_private.check_h5py()


def test_global_lock_is_that_of_h5py():
    assert h5py_private.phil is h5py._objects.phil
    with h5py_private.phil, h5py_private.phil:  # reentrant
        pass


def test_objects_read_their_identifier_from_the_replaced_attribute(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/x", data=[1, 2], chunks=(1,), compression="gzip")
        assert (file._e("é"), file._d("é".encode())) == ("é".encode(), "é")
        assert hasattr(file, "_lapl")
        assert isinstance(file["g/x"]._fast_read_ok, bool)
    with hopen(tmp_path / "a.h5") as file:
        group, dataset = file["g"], file["g/x"]
        file.suspend()
        assert dataset._oid is None
        assert dataset.id.valid and dataset[1] == 2 and list(group) == ["x"]
        assert (dataset.chunks, dataset.compression) == ((1,), "gzip")


def test_closing_a_file_closes_its_objects(tmp_path, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1]
    assert h5py_private._close_open_objects is not None
    for private_method in (h5py_private._close_open_objects, None):
        monkeypatch.setattr(h5py_private, "_close_open_objects", private_method)
        file = h5py.File(tmp_path / "a.h5")
        dataset, fid = file["x"], file.id
        h5py_private.close_file(fid)
        assert not dataset.id.valid and not fid.valid


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("h5py._objects", "phil"),
        ("h5py.Group", "_e"),
        ("h5py.Group", "_d"),
        ("h5py.Dataset", "_fast_read_ok"),
    ],
)
def test_missing_name_is_an_error_with_advice(place, name, monkeypatch, unchecked, tmp_path):
    path = tmp_path / "a.h5"
    h5py.File(path, "w").close()
    real = h5py_private.hasattr if hasattr(h5py_private, "hasattr") else hasattr
    if name == "phil":
        monkeypatch.setattr(h5py_private, "phil", object())
    else:
        monkeypatch.setattr(
            h5py_private, "hasattr", lambda item, one: one != name and real(item, one), raising=False
        )
    for use in (lambda: hopen(path), lambda: guard().__enter__()):
        with pytest.raises(MissingExtraError, match=rf"h5py .* lacks .*{name}.*: pip install 'h5py>="):
            use()
