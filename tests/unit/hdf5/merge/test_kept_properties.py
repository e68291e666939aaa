"""Properties of the sources that a merged file has as well.

Covers `shardkeep.hdf5.merge.planner` and `shardkeep.hdf5.storage.layout`.
"""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5.merge.merge import merge
from shardkeep.hdf5.verify import verify
from tests.unit.hdf5.merge.file_types import TYPES, create_exactly, stored, text

LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (2,)},
    "gzip": {"chunks": (2,), "gzip": True},
}
MODES = ["copy", "virtual", "keyed"]


def _merged(paths: list[Path], output: Path, mode: str) -> h5py.File:
    order = {"order_by": "id"} if mode == "keyed" else {}
    report = merge(paths, output, mode="virtual" if mode == "virtual" else "copy", check="full", **order)  # type: ignore[call-overload]
    assert (report.left_out, report.dropped_attributes) == ({}, {})
    assert verify(output).ok
    return h5py.File(output)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TYPES)
def test_rows_values_and_attributes_keep_their_type_and_bytes(
    tmp_path: Path, name: str, layout: str, mode: str
) -> None:
    kind, rows = TYPES[name]
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            dataset = create_exactly(file, "x", kind, rows, **LAYOUTS[layout])
            create_exactly(file, "scalar", kind, rows[:1].reshape(()))
            h5py.h5a.create(dataset.id, b"many", kind, h5py.h5s.create_simple(rows.shape)).write(rows, kind)
            file["id"] = np.arange(len(rows)) * 2 + number
    with _merged(paths, tmp_path / "all.h5", mode) as file:
        expected = np.repeat(rows, 2) if mode == "keyed" else np.tile(rows, 2)
        found_kind, found = stored(file["x"])
        assert found_kind == kind
        if name != "bfloat16" or mode == "virtual":
            assert found == expected.tobytes()
        assert stored(file["scalar"]) == (kind, rows[:1].tobytes())
        assert stored(file["x"].attrs.get_id("many")) == (kind, rows.tobytes())


@pytest.mark.parametrize("mode", MODES)
def test_text_with_other_padding_elsewhere_becomes_text_that_holds_all(tmp_path: Path, mode: str) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for number, (path, padding) in enumerate(
        zip(paths, (h5py.h5t.STR_NULLTERM, h5py.h5t.STR_SPACEPAD), strict=True)
    ):
        with h5py.File(path, "w") as file:
            rows = np.array([b"full", b"a" if padding == h5py.h5t.STR_NULLTERM else b"a   "])
            create_exactly(file, "x", text(4, padding), rows.astype("V4"))
            file["id"] = [number, 2 + number]
    with _merged(paths, tmp_path / "all.h5", mode) as file:
        want = [b"full", b"full", b"a", b"a"] if mode == "keyed" else [b"full", b"a"] * 2
        assert file["x"][:].tolist() == want
        assert file["x"].id.get_type().get_strpad() == h5py.h5t.STR_NULLPAD


@pytest.mark.parametrize("mode", MODES)
def test_links_and_attributes_keep_their_order(tmp_path: Path, mode: str) -> None:
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for number, path in enumerate(paths):
        with h5py.File(path, "w", track_order=True) as file:
            file["id"] = [number]
            group = file.create_group("g", track_order=True)
            group["soft"] = h5py.SoftLink("/g/z")
            for name in "zya":
                file.attrs[name] = group.attrs[name] = 1
                group[name] = [number]
            group["b"] = group["z"]
            group.create_group("x/deep")
            group["type"] = np.dtype("i4")
            x = file.create_dataset("d", data=[1], track_order=True)
            scalar = file.create_dataset("c", data=1, track_order=True)
            for name in [str(i) for i in range(20, 0, -1)]:
                x.attrs[name] = scalar.attrs[name] = 1
            plain = file.create_group("plain", track_order=False)
            plain["z"] = plain["a"] = 1
    with _merged(paths, tmp_path / "all.h5", mode) as file:
        with h5py.File(paths[0]) as source:
            for path in ("g", "plain"):
                assert list(file[path]) == list(source[path])
            for path in ("/", "g", "d", "c"):
                assert list(file[path].attrs) == list(source[path].attrs)
            assert [name for name in file if not name.startswith("_")] == list(source)
        assert list(file["plain"]) == ["a", "z"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", ["chunked", "gzip", "contiguous"])
def test_fill_values_limits_and_chunks_are_kept(tmp_path: Path, layout: str, mode: str) -> None:
    options: dict[str, Any] = {} if layout == "contiguous" else {"chunks": (2, 4), "maxshape": (None, None)}
    if layout == "gzip":
        options["compression"] = "gzip"
    array = h5py.h5t.array_create(text(2), (2,))
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["id"] = np.arange(4) * 2 + number
            file.create_dataset("x", (4, 8), "f4", fillvalue=-99, **options)[:2] = number
            file.create_dataset("text", data=[b"abc"] * 4, dtype="S3", fillvalue=b"xyz")
            file.create_dataset("words", data=["abc"] * 4, dtype=h5py.string_dtype(), fillvalue="none")
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_fill_value(np.array(7, "i4"))
            space = h5py.h5s.create_simple((4,))
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            h5py.h5d.create(file.id, b"never", h5py.h5t.STD_I32LE, space, properties)
            file["never"][:] = number
            create_exactly(file, "arrays", array, np.array([b"abcd"] * 4, "V4"))
    with _merged(paths, tmp_path / "all.h5", mode) as file, h5py.File(paths[0]) as source:
        for name in ("x", "text", "words", "never"):
            assert file[name].fillvalue == source[name].fillvalue
        assert file["never"].id.get_create_plist().get_fill_time() == h5py.h5d.FILL_TIME_NEVER
        if mode == "virtual":
            assert file["x"].maxshape[1:] == source["x"].maxshape[1:]
        else:
            assert file["x"].chunks == source["x"].chunks
            assert file["x"].maxshape == ((None, None) if options else (8, 8))
        x = file["x"][:]
    order = (
        np.argsort(np.concatenate([np.arange(4) * 2, np.arange(4) * 2 + 1]))
        if mode == "keyed"
        else slice(None)
    )
    expected = np.repeat([0, -99, 1, -99], 2)[order]
    assert x[:, 0].tolist() == expected.tolist()


@pytest.mark.parametrize(("one", "two"), [("f4", "c8"), ("i2", "i4"), ("S2", "S5")])
def test_a_fill_value_is_converted_with_its_rows(tmp_path: Path, one: str, two: str) -> None:
    fill = 0 if one == "S2" else 7  # h5py cannot set fixed text
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "x", (3,), one, chunks=(3,), maxshape=(None,), fillvalue=fill or None, track_order=True
        )
        file.create_dataset("words", (3,), h5py.string_dtype("ascii"), fillvalue="none")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["x"] = np.zeros(3, two)
        file.create_dataset("words", (3,), h5py.string_dtype())
    output = tmp_path / "all.h5"
    merge([tmp_path / "a.h5", tmp_path / "b.h5"], output, on_mismatch="promote")
    with h5py.File(output) as file:
        fill = fill or b""
        assert file["x"].dtype == two and file["x"].fillvalue == fill
        assert file["x"][:3].tolist() == [fill] * 3
        assert file["x"].id.get_create_plist().get_attr_creation_order()


def test_a_plan_can_be_pickled(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (3,), "i4", fillvalue=7)
    plan = merge([tmp_path / "a.h5"], tmp_path / "all.h5", dry_run=True)
    assert str(pickle.loads(pickle.dumps(plan))) == str(plan)


@pytest.mark.parametrize("subject", ["rows", "attribute"])
def test_full_text_of_variable_length_is_not_called_damage(tmp_path: Path, subject: str) -> None:
    path, output = tmp_path / "a.h5", tmp_path / "all.h5"
    words = np.empty(1, h5py.vlen_dtype("S4"))
    words[0] = np.array([b"full"])
    with h5py.File(path, "w") as file:
        file["x"] = words if subject == "rows" else [1]
        if subject == "attribute":
            file["x"].attrs.create("words", words, dtype=words.dtype)
    # h5py cannot write such text: the padding in the type becomes H5T_STR_NULLTERM.
    padded, ended = b"\x13\x01\0\0\4\0\0\0", b"\x13\0\0\0\4\0\0\0"
    assert path.read_bytes().count(padded) == 1
    path.write_bytes(path.read_bytes().replace(padded, ended))
    if subject == "rows":
        with pytest.raises(
            SchemaError, match=r"dataset 'x' of .*a\.h5' has fixed text without room for its NUL"
        ):
            merge([path], output)
        assert not output.exists()
    else:
        with pytest.warns(RuntimeWarning, match="x@words: has fixed text without room for its NUL"):
            report = merge([path], output)
        assert list(report.left_out) == ["x@words"]


def test_an_empty_attribute_keeps_its_type(tmp_path: Path) -> None:
    path, kind = tmp_path / "a.h5", h5py.h5t.array_create(h5py.h5t.STD_I16BE, (2,))
    with h5py.File(path, "w") as file:
        h5py.h5a.create(file["/"].id, b"empty", kind, h5py.h5s.create(h5py.h5s.NULL))
    with _merged([path], tmp_path / "all.h5", "copy") as file:
        attribute = file.attrs.get_id("empty")
        assert attribute.get_type() == kind
        assert attribute.get_space().get_simple_extent_type() == h5py.h5s.NULL


def test_a_type_without_a_numpy_dtype_is_refused_by_the_dry_run_too(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        h5py.h5d.create(file.id, b"x", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((2,)))
    for dry_run in (True, False):
        with pytest.raises(SchemaError, match=r"dataset 'x' of .*a\.h5' has a type that cannot be read"):
            merge([path], tmp_path / "all.h5", dry_run=dry_run)  # type: ignore[call-overload]
