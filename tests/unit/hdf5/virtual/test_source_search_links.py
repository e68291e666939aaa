"""Names of dangling links in errors about virtual sources.

Covers `shardkeep.hdf5.virtual.source_search`.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import pytest

import shardkeep as sk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((2,), "i8")
        layout[:] = h5py.VirtualSource("s.h5", "g/x", (2,))
        file.create_virtual_dataset("v", layout)
    return tmp_path / "v.h5"


@pytest.mark.parametrize(
    ("link", "match"),
    [
        (h5py.ExternalLink("gone.h5", "/y"), "the link 'g/x' to '/y' in the file 'gone.h5' leads nowhere"),
        (h5py.SoftLink("/y"), "the link 'g/x' to '/y' leads nowhere"),
    ],
)
def test_a_dangling_link_in_a_source_is_named(path: Path, link: object, match: str) -> None:
    with h5py.File(path.parent / "s.h5", "w") as file:
        file.create_group("g")["x"] = link
    with pytest.raises(
        sk.SchemaError, match=rf"'g/x' of '.*s\.h5', a source of .* is not there, since {match}"
    ):
        sk.hdf5.open(path)


def test_a_group_that_is_a_dangling_link_is_named(path: Path) -> None:
    with h5py.File(path.parent / "s.h5", "w") as file:
        file["g"] = h5py.ExternalLink("gone.h5", "/h")
    with pytest.raises(sk.SchemaError, match=r"the link 'g' to '/h' in the file 'gone\.h5' leads nowhere"):
        sk.hdf5.open(path)


def test_a_source_that_is_a_dangling_symlink_is_named(path: Path) -> None:
    (path.parent / "s.h5").symlink_to("elsewhere.h5")
    with pytest.raises(sk.NotFoundError, match=r"s\.h5', .* is missing \(a link to 'elsewhere\.h5'\)"):
        sk.hdf5.open(path)
