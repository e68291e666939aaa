"""Verification of parts that h5py cannot show, of attributes and of links.

Covers `shardkeep.hdf5.verify` and `shardkeep.hdf5.sources.stored_bytes`.
"""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.hdf5 import WorkerFile, merge, verify
from tests.unreadable_files import KINDS, write_filtered, write_typed


@pytest.mark.parametrize("attribute", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_a_type_without_a_form_in_h5py_is_intact(name: str, attribute: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_typed(path, KINDS[name](), attribute=attribute)
    found = verify(path)
    assert found.ok and not found.unreadable
    (note,) = found.notes
    assert ("attribute 'a' of 'fine' " if attribute else "'x' ") in note
    assert "intact" in note
    assert found.rows == (2 if attribute else 6)


@pytest.mark.parametrize("name", KINDS)
def test_other_readers_name_the_type_and_do_not_speak_of_damage(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_typed(path, KINDS[name]())
    assert [one.name for one in sk.info(path).datasets] == ["fine", "x"]
    assert [row.value for row in sk.cat(path, dataset="fine")] == [1, 2]
    for call in (lambda: list(sk.cat(path, dataset="x")), lambda: merge([path], tmp_path / "m.h5")):
        with pytest.raises(sk.SchemaError, match=r"'x'.*leave it out") as caught:
            call()
        assert "restore" not in str(caught.value)
    write_typed(path, KINDS[name](), attribute=True)
    with pytest.warns(RuntimeWarning, match="left out"):
        assert merge([path], tmp_path / "m.h5").rows == {"fine": 2}


def test_damaged_bytes_of_a_type_without_a_form_in_h5py_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((4,))
        properties.set_fletcher32()
        space, kind = h5py.h5s.create_simple((4,)), h5py.h5t.UNIX_D32LE
        item = h5py.h5d.create(file.id, b"x", kind, space, properties)
        item.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(4, dtype="u4").view("V4"), kind)
        offset = item.get_chunk_info(0).byte_offset
    assert verify(path).ok
    with open(path, "r+b") as opened:
        opened.seek(offset)
        opened.write(b"\xff")
    (finding,) = verify(path).findings
    assert "rows of 'x'" in finding and "restore" in finding


@pytest.mark.parametrize(("code", "name"), [(305, "lzo"), (40_000, "number 40000")])
def test_a_filter_that_is_not_installed_is_not_damage(code: int, name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_filtered(path, code)
    found = verify(path)
    assert (found.findings, found.rows, found.ok) == ((), 2, False)
    (text,) = found.unreadable
    assert f"filter {name!r}" in text and "HDF5_PLUGIN_PATH" in text
    assert "pip install" not in text
    write_filtered(path, code, skipped=True)
    assert verify(path).ok


def test_stored_chunks_of_an_absent_filter_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_filtered(path, 305)
    with h5py.File(path) as file:
        offset = file["x"].id.get_chunk_info(3).byte_offset
    data = bytearray(path.read_bytes())
    # Within a file of version 0 nothing but the index of the chunks has this address.
    where = data.index(offset.to_bytes(8, "little"))
    data[where : where + 8] = (1 << 40).to_bytes(8, "little")
    path.write_bytes(data)
    found = verify(path)
    assert "beyond its end" in found.findings[0]


def test_names_in_latin_1_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((2,))
        h5py.h5d.create(file.id, b"Temp\xe9rature", h5py.h5t.STD_I32LE, space)
        h5py.h5d.create(h5py.h5g.create(file.id, b"gr\xfcn"), b"x", h5py.h5t.STD_I32LE, space)
        file["fine"] = [1, 2]
        h5py.h5a.create(file["fine"].id, b"\xe9t\xe9", h5py.h5t.STD_I32LE, space)
        file["fine"].attrs.create("note", b"\xe9t\xe9", dtype=h5py.string_dtype())
    found = verify(path)
    assert (found.ok, found.rows, found.notes) == (True, 6, ())
    latin = "Temp\udce9rature"
    assert [one.name for one in sk.info(path).datasets] == [latin, "fine", "gr\udcfcn/x"]
    assert [row.value for row in sk.cat(path, dataset=latin)] == [0, 0]
    with sk.hdf5.open(path) as opened:
        assert list(opened) == [b"Temp\xe9rature", "fine", b"gr\xfcn"]
        assert opened[b"gr\xfcn"]["x"].name == b"/gr\xfcn/x"
        assert opened[b"Temp\xe9rature"][1] == 0
    with pytest.raises(sk.SchemaError, match="not UTF-8"):
        merge([path], tmp_path / "m.h5")


@pytest.mark.parametrize("on", ["/", "g", "x", "named"])
def test_a_damaged_attribute_is_found(on: str, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["g/y"], file["x"], file["named"] = [1], [2], np.dtype("i4")
        file[on].attrs["text"] = "a word of variable length"
    assert verify(path).ok
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 16] = 9  # the object has another number
    path.write_bytes(data)
    (finding,) = verify(path).findings
    assert f"attribute 'text' of {on!r}" in finding


@pytest.mark.parametrize("kind", ["segment", "merged"])
def test_a_damaged_attribute_of_a_worker_is_found(kind: str, tmp_path: Path) -> None:
    with WorkerFile(tmp_path / "run", sk.World(0, 1)) as out:
        out.append("x", [1.0])
        out.set_attribute("text", "a word of variable length", on="group")
        out.commit(step=1)
    path = tmp_path / "run/rank-00000/00000000-step-1.h5"
    if kind == "merged":
        path = tmp_path / "m.h5"
        merge(tmp_path / "run", path)
    assert verify(path).kind == kind and verify(path).ok
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    data[heap + 16] = 9
    path.write_bytes(data)
    assert not verify(path).ok


def test_what_was_missing_at_the_merge_is_a_note(tmp_path: Path) -> None:
    with WorkerFile(tmp_path / "run", sk.World(1, 2)) as out:
        out.append("x", [1.0])
        out.commit(step=1)
    merge(tmp_path / "run", tmp_path / "m.h5", incomplete="allow")
    found = verify(tmp_path / "m.h5")
    (note,) = found.notes
    assert found.ok and "rank 0 of 2 has no commit" in note and note.endswith("when it was merged")


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = [1]
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["fine"] = [1, 2]
        file["here"] = h5py.ExternalLink("other.h5", "/x")
        file["soft"] = h5py.SoftLink("/fine")
        file["via"] = h5py.SoftLink("here")
    found = verify(path)
    assert (found.ok, found.notes) == (True, ())
    with h5py.File(path, "a") as file:
        file["gone"] = h5py.ExternalLink("gone.h5", "/x")
        file["no object"] = h5py.ExternalLink("other.h5", "/y")
        file["nowhere"] = h5py.SoftLink("/nothing")
        file["circle"] = h5py.SoftLink("/circle")
    found = verify(path)
    assert len(found.findings) == 2
    assert "the external link 'gone' to '/x' in 'gone.h5' cannot be followed" in found.findings[0]
    assert "the external link 'no object' to '/y' in 'other.h5' cannot be followed" in found.findings[1]
    assert [text.partition(" leads")[0] for text in found.notes] == [
        "the link 'circle' to '/circle'",
        "the link 'nowhere' to '/nothing'",
    ]


def test_a_sparse_dataset_is_read_where_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        wide = file.create_dataset("x", (3, 1 << 45), "u1", chunks=(1, 4096))
        wide[2, 1 << 44] = 5
        file.create_dataset("y", (1 << 45,), "u1")
    read: list[int] = []
    found = verify(path, progress=read.append)
    assert (found.findings, sum(read)) == ((), 4096)


def test_values_of_many_axes_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["contiguous"] = np.zeros((3, 1000, 2000), "f4")
        file.create_dataset("chunked", data=np.zeros((7, 900, 1100), "f4"), chunks=(2, 400, 500))
        file["none"] = np.zeros((0, 5))
    read: list[int] = []
    found = verify(path, progress=read.append)
    assert (found.ok, found.rows) == (True, 10)
    assert sum(read) == 3 * 1000 * 2000 * 4 + 7 * 900 * 1100 * 4
    assert max(read) <= 8 << 20


def test_a_result_is_a_dict_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    write_filtered(path, 305)
    found = verify(os.fspath(path)).to_dict()
    assert (found["ok"], len(found["unreadable"]), found["notes"]) == (False, 1, ())


@pytest.mark.parametrize("name", ["time", "bitfield"])
def test_a_virtual_dataset_of_a_type_that_h5py_cannot_read_is_not_damaged(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]()
    write_typed(tmp_path / "source.h5", kind)
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        space = h5py.h5s.create_simple((4,))
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_virtual(space, b"source.h5", b"x", space)
        h5py.h5d.create(file.id, b"virtual", kind, space, properties)
    found = verify(path)
    assert found.findings == ()
    (text,) = found.unreadable
    assert (
        text
        == f"'virtual' is virtual and has values of type {name}, which h5py cannot read: verify its sources"
    )
    with pytest.raises(sk.SchemaError, match="h5py does not support its type"):
        list(sk.cat(path, dataset="virtual"))
