"""Layouts that the Rust half reads: equal to those that h5py reads, also in damaged files."""

from __future__ import annotations

import dataclasses
import os
import random

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import hdf5_damage, hdf5_virtual_dataset, hdf5_virtual_datasets
from shardkeep.hdf5.virtual import layout as layouts
from shardkeep.hdf5.virtual.layout import VirtualLayout, find_virtual, read_virtual_layout

VERSIONS = ["earliest", "v108", "v110", "v112", "v114", "latest"]
NAMES = ["a.h5", ".", "é/b.h5", "a-name-that-is-so-long-that-it-is-told-but-once", "100%%.h5"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return str(tmp_path_factory.mktemp("layout") / "v.h5")


def same(one: VirtualLayout, other: VirtualLayout) -> None:
    assert one.stored == other.stored
    assert one.stored.encode() == other.stored.encode()
    for field in dataclasses.fields(VirtualLayout):
        if field.name != "stored":
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            np.testing.assert_array_equal(mine, theirs, err_msg=field.name)
            if isinstance(mine, np.ndarray):
                assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)


def native(path: str, name: str) -> VirtualLayout | None:
    """Return the layout that the Rust half reads; None if it leaves the dataset to h5py."""
    with h5py.File(path) as file, pytest.MonkeyPatch.context() as patch:

        def never(*_):
            raise LookupError

        patch.setattr(layouts, "_through_h5py", never)
        try:
            return read_virtual_layout(file.id, path, name)
        except LookupError:
            return None


def through_h5py(path: str, name: str) -> VirtualLayout:
    with h5py.File(path) as file:
        return layouts._through_h5py(file[name].id, path, name)


# -- whatever HDF5 writes ----------------------------------------------------------------------------------


@st.composite
def boxes(draw, shape):
    """Start, stride, count and block along each axis; mostly of one box."""
    found = []
    for length in shape:
        start = draw(st.integers(0, length - 1))
        left = length - start
        if draw(st.integers(0, 9)) == 0 and left >= 3:
            found.append((start, 2, draw(st.integers(1, min(4, (left + 1) // 2))), 1))
        elif draw(st.booleans()):
            found.append((start, 1, draw(st.integers(1, left)), 1))
        else:
            found.append((start, 1, 1, draw(st.integers(1, left))))
    return list(zip(*found, strict=True))


@st.composite
def mappings(draw, shape):
    file, name = draw(st.sampled_from(NAMES)), draw(st.sampled_from(["x", "group/of/x", "y%%"]))
    if draw(st.integers(0, 9)) == 0:
        return file, name, None, shape, None
    box = draw(boxes(shape))
    lengths = [count * block for count, block in zip(box[2], box[3], strict=True)]
    kind = draw(st.sampled_from(["all", "flat", "box", "thick"]))
    if kind == "all":
        return file, name, box, tuple(lengths), None
    if kind == "flat":
        lengths = [int(np.prod(lengths))]
    elif kind == "thick":
        lengths = [*lengths[:1], 1, *lengths[1:]]
    before = [draw(st.integers(0, 3)) for _ in lengths]
    extent = tuple(a + n + draw(st.integers(0, 2)) for a, n in zip(before, lengths, strict=True))
    ones = (1,) * len(lengths)
    return file, name, box, extent, (tuple(before), ones, tuple(lengths), ones)


@st.composite
def datasets(draw):
    shape = tuple(
        draw(st.lists(st.integers(1, 70_000 if draw(st.booleans()) else 9), min_size=1, max_size=4))
    )
    dtype = draw(
        st.sampled_from(
            ["i4", ">f8", "S5", "?", "c16", "V3", [("a", "u1"), ("b", "f4", (2, 3))], h5py.string_dtype()]
        )
    )
    return shape, dtype, draw(st.lists(mappings(shape), max_size=12)), draw(st.booleans())


def write(file: h5py.File, name: str, dataset) -> None:
    shape, dtype, parts, grows = dataset
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.VIRTUAL)
    for source, source_name, box, extent, source_box in parts:
        space, there = h5py.h5s.create_simple(shape), h5py.h5s.create_simple(extent)
        for one, selected in ((space, box), (there, source_box)):
            if selected is not None:
                start, stride, count, block = selected
                one.select_hyperslab(start, count, stride, block)
        properties.set_virtual(space, os.fsencode(source), source_name.encode(), there)
    most = tuple(h5py.h5s.UNLIMITED for _ in shape) if grows else shape
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
    whole = h5py.h5s.create_simple(shape, most)
    h5py.h5d.create(file.id, name.encode(), kind, whole, properties, links)


@given(
    dataset=datasets(),
    version=st.sampled_from(VERSIONS),
    userblock=st.sampled_from([0, 512, 8192]),
    name=st.sampled_from(["/x", "/a/b/c/x", "/é"]),
    paged=st.booleans(),
)
def test_layout_is_that_of_h5py(path, dataset, version, userblock, name, paged):
    options = {"fs_strategy": "page"} if paged and userblock != 512 else {}
    with h5py.File(path, "w", libver=version, userblock_size=userblock, **options) as file:
        file["before"] = [1, 2]
        write(file, name, dataset)
    theirs = through_h5py(path, name)
    ours = native(path, name)
    if ours is None:
        assert not (theirs.is_box.all() and theirs.is_source_box.all())
    else:
        same(ours, theirs)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [3, 300])
def test_many_mappings_in_several_datasets(path, version, count):
    ones = (1, 1)
    parts = [
        (
            f"{i:04}.h5",
            "x",
            ((i, 0), ones, ones, (1, 5)),
            (1, 5),
            None if i % 2 else ((0, 0), ones, (1, 5), ones),
        )
        for i in range(count)
    ]
    with h5py.File(path, "w", libver=version) as file:
        for name in "abc":
            write(file, name, ((count, 5), "i4", parts[: count - ord(name) + 97], False))
            file[name].attrs["much"] = np.zeros(4_000)
            file[name].attrs["more"] = "text"
    for name in "abc":
        ours = native(path, name)
        assert ours is not None
        same(ours, through_h5py(path, name))


# -- which there are ---------------------------------------------------------------------------------------


@given(
    kinds=st.lists(st.sampled_from("vvdgsenh"), max_size=90),
    width=st.sampled_from([4, 8, 100]),
    version=st.sampled_from(VERSIONS),
    tracked=st.booleans(),
    seed=st.integers(0, 99),
)
def test_found_datasets_are_those_of_h5py(path, kinds, width, version, tracked, seed):
    """Virtual, plain and named, soft, external, hard links, in groups as wide as `width`."""
    names = random.Random(seed)
    with h5py.File(path, "w", libver=version, track_order=tracked) as file:
        groups = [file]
        for kind in kinds:
            free = [one for one in groups if len(one) < width]
            if not free:
                break
            group = names.choice(free)
            name = f"{names.choice('Zaé_')}{names.randrange(10**6)}"
            if kind == "v":
                layout = h5py.VirtualLayout((2,), "i4")
                layout[:] = h5py.VirtualSource("s.h5", "x", (2,))
                group.create_virtual_dataset(name, layout)
            elif kind == "d":
                group.create_dataset(name, (4,), "i4", chunks=names.choice([None, (2,)]), maxshape=(4,))
            elif kind == "g":
                groups.append(group.create_group(name))
            elif kind == "s":
                group[name] = h5py.SoftLink("/nowhere")
            elif kind == "e":
                group[name] = h5py.ExternalLink("e.h5", "/x")
            elif kind == "n":
                group[name] = np.dtype("i4")
            else:
                group[name] = names.choice(groups)
    with h5py.File(path) as file, pytest.MonkeyPatch.context() as patch:
        ours = hdf5_virtual_datasets(file.id.get_vfd_handle(), 64)
        found = list(find_virtual(file.id))
        patch.setattr(layouts, "hdf5_virtual_datasets", lambda *_: None)
        theirs = list(find_virtual(file.id))
    assert found == theirs
    assert ours is not None
    assert [one.decode() for one in ours] == theirs


def test_unwritten_changes_of_this_process_are_seen(path):
    with h5py.File(path, "w") as file:
        file["x"] = 1
    with h5py.File(path, "r+") as writer:
        layout = h5py.VirtualLayout((2,), "i4")
        layout[:] = h5py.VirtualSource("s.h5", "x", (2,))
        writer.create_virtual_dataset("v", layout)
        reader = h5py.h5f.open(path.encode(), h5py.h5f.ACC_RDONLY)
        assert hdf5_virtual_datasets(reader.get_vfd_handle(), 64) == []
        assert list(find_virtual(reader)) == ["/v"]
        assert read_virtual_layout(reader, path, "/v").files == [b"s.h5"]
        reader.close()


# -- damage ------------------------------------------------------------------------------------------------


def victim(path: str, version: str) -> bytes:
    shape = (9, 6)
    box = ((0, 0), (1, 1), (1, 1), (4, 6))
    other = ((4, 0), (1, 1), (5, 6), (1, 1))
    parts = [("a.h5", "x", box, (4, 6), None), ("b.h5", "x", other, (7, 6), ((2, 0), (1, 1), (5, 6), (1, 1)))]
    with h5py.File(path, "w", libver=version) as file:
        file["plain"] = [1, 2]
        write(file, "g/x", (shape, "i4", parts, False))
        file["g"].attrs["a"] = "b"
    with open(path, "rb") as opened:
        return opened.read()


def read_both(fd: int):
    found = hdf5_virtual_dataset(fd, b"/g/x")
    return hdf5_virtual_datasets(fd, 64), found and [
        one.tolist() if isinstance(one, np.ndarray) else one for one in found
    ]


def compare_with_hdf5(path: str) -> bool:
    """Assert that both layouts are equal; return False if the Rust half has none, or HDF5 refuses the file.

    In files without checksums HDF5 also refuses damage that the layout does not depend on.
    """
    if hdf5_damage(path, lock=False, most_structures=16_384, rows=False)[1] is not None:
        return False  # HDF5 might not return
    try:
        h5py.File(path).close()
    except OSError:
        return False
    ours = native(path, "/g/x")
    if ours is None:
        return False
    try:
        theirs = through_h5py(path, "/g/x")
    except (KeyError, OSError, RuntimeError, ValueError):
        return False
    same(ours, theirs)
    return True


@pytest.mark.parametrize("bits", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("version", ["earliest", "v108", "latest"])
def test_flipped_bit_is_noticed_or_layout_is_that_of_hdf5(path, version, bits):
    """A checksum covers the bit, or the layout is still the one that HDF5 reads."""
    content = victim(path, version)
    heap = content.index(b"GCOL")
    heads = range(heap, heap + 16 + 16)  # no checksum covers them
    fd = os.open(path, os.O_RDWR)
    try:
        whole = read_both(fd)
        assert whole[0] == [b"/g/x"]
        assert whole[1] is not None
        other = compared = 0
        for at, byte in enumerate(content):
            for bit in range(bits):
                os.pwrite(fd, bytes([byte ^ 1 << (at + bit) % 8]), at)
                paths, dataset = read_both(fd)
                if version == "earliest" or at in heads:
                    other += (paths, dataset) != whole
                    if dataset is not None and (paths, dataset) != whole:
                        compared += compare_with_hdf5(path)
                else:
                    assert paths in (None, whole[0]), at
                    assert dataset in (None, whole[1]), at
                    other += paths is None or dataset is None
            os.pwrite(fd, bytes([byte]), at)
        assert other > 100
        assert compared > 20 or version != "earliest"
    finally:
        os.close(fd)


@pytest.mark.parametrize("version", ["earliest", "latest"])
def test_truncated_file_has_the_same_layout_or_none(path, version):
    content = victim(path, version)
    fd = os.open(path, os.O_RDWR)
    try:
        whole = read_both(fd)
        for length in range(len(content) - 1, -1, -1):
            os.ftruncate(fd, length)
            paths, dataset = read_both(fd)
            assert paths in (None, whole[0])
            assert dataset in (None, whole[1])
        assert paths is None
    finally:
        os.close(fd)


@given(seed=st.integers(0, 2**32), version=st.sampled_from(VERSIONS))
def test_hostile_addresses_and_lengths(path, seed, version):
    """Whole words of addresses and lengths: circles, ends beyond the file, enormous counts."""
    content = bytearray(victim(path, version))
    chance = random.Random(seed)
    heads = [at for at in range(len(content) - 8) if bytes(content[at : at + 4]) in MARKS]
    for _ in range(chance.randrange(1, 6)):
        at = (
            chance.choice(heads) + chance.randrange(0, 80)
            if chance.random() < 0.8
            else chance.randrange(6_000)
        )
        value = chance.choice([0, 1, 2**64 - 1, 2**63, 2**32, len(content), chance.choice(heads)])
        content[at : at + 8] = value.to_bytes(8, "little")
    with open(path, "wb") as file:
        file.write(content)
    with open(path, "rb") as file:
        read_both(file.fileno())
    compare_with_hdf5(path)


MARKS = {b"\x89HDF", b"OHDR", b"OCHK", b"TREE", b"SNOD", b"HEAP", b"GCOL"}


def test_descriptors_of_other_files_have_no_layout(tmp_path):
    for content in (b"", b"\x89HDF\r\n\x1a\n", b"\x89HDF\r\n\x1a\n" * 1000, bytes(100_000)):
        (tmp_path / "odd").write_bytes(content)
        with open(tmp_path / "odd", "rb") as file:
            assert read_both(file.fileno()) == (None, None)
    read, write_end = os.pipe()
    assert read_both(read) == (None, None)
    os.close(read)
    assert read_both(read) == (None, None)
    os.close(write_end)
    with pytest.raises(ValueError, match="descriptor"):
        hdf5_virtual_datasets(-1, 64)
