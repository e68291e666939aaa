"""Pages of groups and datasets.

Covers `shardkeep.viewer.hdf5.child.cells`, `shardkeep.viewer.hdf5.child.contents`,
`shardkeep.viewer.hdf5.child.limits`, `shardkeep.viewer.hdf5.child.main` and
`shardkeep.viewer.hdf5.child.rows`.
"""

from __future__ import annotations

import re

import h5py
import numpy as np
import pytest

from shardkeep import World
from shardkeep.hdf5 import WorkerFile, merge


def test_a_group_has_its_members(shown, file):
    file.attrs["title"] = "Every kind"
    file.create_dataset("loss", data=np.arange(1000.0), chunks=(100,), compression="gzip")
    file["loss"].attrs["unit"] = "metre"
    file.create_group("inner/deep")
    file["soft"] = h5py.SoftLink("/inner/deep")
    file["type"] = np.dtype([("a", "i4")])
    file.close()
    status, text = shown("0/a.h5")
    assert status == 200
    assert "loss dataset 1,000 float64 100 deflate 4" in text and "inner group 1 member" in text
    assert "soft soft link to /inner/deep" in text and "a named type: {a: int32}" in text
    assert "title Every kind str" in text
    assert "unit metre str" in shown("0/a.h5?at=/loss")[1]
    assert "The group is empty." in shown("0/a.h5?at=/soft")[1]


def test_a_large_group_has_pages(shown, file):
    for number in range(250):
        file.create_group(f"g{number:03d}")
    file.close()
    first, last = shown("0/a.h5")[1], shown("0/a.h5?first=1000000")[1]
    assert "g099" in first and "g100" not in first and "0–99 of 250" in first
    assert "g200" in last and "g249" in last and "g199" not in last


def test_a_group_of_very_many_members_is_not_sorted(shown, file):
    group = file.create_group("g", track_order=True)
    for number in range(20_001):
        group[f"m{number}"] = h5py.SoftLink("/")
    file.close()
    text = shown("0/a.h5?at=/g")[1]
    assert "0–99 of 20,001" in text and "in the order of the file" in text


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (3.5, "value 3.5"),
        (np.array([(1, b"x", [7, 8])], [("id", "i4"), ("name", "S4"), ("pair", "i2", 2)]), "0 1 x 7, 8"),
        (np.arange(6).reshape(2, 3), "Row 0 1 2 0 0 1 2 1 3 4 5"),
        (np.zeros((2, 5, 4)), "0 0.0, 0.0, 0.0, 0.0, … (5×4 values)"),
        (np.array([b"\x00\xff" * 50], "V100"), "00 ff 00 ff"),
        (h5py.Empty("f4"), "The dataset has no values"),
        (np.zeros((0, 3)), "The dataset has no rows yet."),
        (np.array([1 + 2j]), "0 (1+2j)"),
        ("a" * 1000, "aaaa… (1,000 bytes)"),
    ],
)
def test_values_of_every_kind_are_text(shown, file, value, wanted):
    file["x"] = value
    file.close()
    status, text = shown("0/a.h5?at=/x")
    assert status == 200 and wanted in text


def test_special_types_are_text(shown, file):
    colours = h5py.enum_dtype({"RED": 0, "GREEN": 1}, basetype="i1")
    file.create_dataset("enum", data=np.array([0, 1, 2]), dtype=colours)
    ragged = file.create_dataset("ragged", (3,), h5py.vlen_dtype("f4"))
    ragged[0], ragged[2] = [1, 2], np.arange(1_000_000)
    file["reference"] = np.array([file.ref, h5py.Reference()], h5py.ref_dtype)
    file.close()
    assert "0 RED (0) 1 GREEN (1) 2 2" in shown("0/a.h5?at=/enum")[1]
    assert "0 1.0, 2.0 1 2 0.0, 1.0" in shown("0/a.h5?at=/ragged")[1]
    assert "… (1,000,000 values)" in shown("0/a.h5?at=/ragged")[1]
    assert "0 a reference 1 a reference to nothing" in shown("0/a.h5?at=/reference")[1]


def test_large_rows_of_variable_length_end_a_page_early(shown, file):
    ragged = file.create_dataset("x", (20,), h5py.vlen_dtype("f8"))
    for row in range(20):
        ragged[row] = np.zeros(500_000)
    file.close()
    text = shown("0/a.h5?at=/x")[1]
    assert "Only 5 rows, since they are large." in text and "0–4 of 20" in text


def test_rows_and_columns_have_pages(shown, file):
    file["x"] = np.arange(20_000).reshape(200, 100)
    file.close()
    text = shown("0/a.h5?at=/x&first=150&column=90")[1]
    assert "150–199 of 200" in text and "columns 90–99 of 100" in text
    assert "150 15090 15091" in text
    assert "199" in shown("0/a.h5?at=/x&first=99999999")[1]


def test_hostile_names_have_an_address(page, file):
    names = [b"latin\xe9", b"<script>x", b"a b&c=d#%", "\u202egnp".encode(), b"line\nbreak"]
    for number, name in enumerate(names):
        file[name] = [number]
    file.close()
    client = page()
    text = client.get("0/a.h5").text
    assert "<script>x" not in text and "\u202e" not in text
    hrefs = re.findall(r'<th scope="row"><a href="([^"]+)"', text)
    assert len(hrefs) == len(names)
    found = {
        re.findall(
            r'<td class="value">(\d)', client.get(f"http://127.0.0.1:8000{href.replace('&amp;', '&')}").text
        )[0]
        for href in hrefs
    }
    assert found == set("01234")


def test_the_rows_of_a_merged_file_have_their_origin(shown, tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank=rank, size=2)) as worker:
            for step in range(2):
                worker.append("other", np.zeros(1))
                worker.append("loss", np.arange(3.0) + 10 * rank + 100 * step)
                worker.commit(step=step)
    merge(tmp_path / "run", tmp_path / "all.h5")
    text = shown("0/all.h5?at=/loss&first=2")[1]
    assert "Row value Rank Step File and row" in text
    assert re.search(r"11 112\.0 1 \d+ \S+, row 2", text)
    assert re.search(r"2 2\.0 0 \d+ \S+, row 2 3 100\.0 0 \d+ \S+, row 0", text)
    assert "Written by a merge, in the order of rank" in shown("0/all.h5")[1]


def test_missing_objects_and_addresses_have_pages(shown, file):
    file["x"] = [1]
    file["loop"] = h5py.SoftLink("/loop")
    file.close()
    assert shown("0/a.h5?at=/none")[0] == 404
    assert shown("0/a.h5?at=/x/y")[0] == 404
    assert shown("0/a.h5?at=/loop")[0] == 404
    assert shown("0/a.h5?bytes=zz")[0] == 404
