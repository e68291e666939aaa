"""Random damage of files of all layouts: what a repair reports as kept is what was written.

Covers `shardkeep.jobs.salvage.hdf5.global_heaps`, `shardkeep.jobs.salvage.hdf5.remains` and
`shardkeep.jobs.salvage.hdf5.storage`.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from shardkeep.errors import FormatError
from shardkeep.hdf5.storage.names import decode_name
from shardkeep.jobs.salvage.hdf5 import salvage
from shardkeep.jobs.salvage.hdf5.process import CHILD, copy_objects
from shardkeep.jobs.salvage.hdf5.superblock import superblocks
from shardkeep.jobs.salvage.report import RepairedFile
from tests.unit.jobs.salvage.hdf5.layouts import LAYOUTS, make

_FAST, _SLOW = 3, 80


@dataclass
class _Original:
    """Everything in a file."""

    datasets: dict[str, Any]
    others: set[str]

    @classmethod
    def of(cls, path: Path) -> _Original:
        found = cls({}, {"/"})
        with h5py.File(path) as file:

            def visit(name: str, link: Any) -> None:
                item = file.get(name) if isinstance(link, h5py.HardLink) else None
                if isinstance(item, h5py.Dataset):
                    found.datasets[f"/{name}"] = _values(item)
                else:
                    found.others.add(f"/{name}")

            file.visititems_links(visit)
        return found


def _values(item: h5py.Dataset) -> Any:
    if item.shape is None:
        return None
    values = item[()]
    if h5py.check_ref_dtype(item.dtype) is not None:
        return np.array([item.file[one].name if one else "" for one in values], object)
    return np.asarray(values, None if item.dtype.hasobject else item.dtype)


def _same(one: Any, two: Any) -> bool:
    one, two = np.asarray(one), np.asarray(two)
    if one.dtype.hasobject:
        pairs = zip(one.reshape(-1), two.reshape(-1), strict=True)
        return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)
    return one.tobytes() == two.tobytes()


def _ancestors(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/", *("/" + "/".join(parts[: number + 1]) for number in range(len(parts)))]


def check(original: _Original, found: RepairedFile) -> float:
    """Check a repair against the undamaged file; return the share of rows that are right in the output."""
    outcomes: dict[str, set[str]] = {}
    for part in found.parts:
        if part.dataset is not None:
            outcomes.setdefault(part.dataset, set()).add(part.outcome)
    right = total = 0
    whole_loss = any(part.outcome == "lost" and part.dataset is None for part in found.parts)
    opened = {} if found.output is None else h5py.File(found.output)
    for name, values in original.datasets.items():
        rows = 1 if values is None or not values.shape else len(values)
        total += rows
        own, above = (
            outcomes.get(name, set()),
            set().union(*(outcomes.get(one, set()) for one in _ancestors(name))),
        )
        copy = opened.get(name)
        excused = bool(own & {"unchecked"}) or bool(above & {"unchecked"})
        if not isinstance(copy, h5py.Dataset) or (copy.shape is None) != (values is None):
            assert whole_loss or excused or "lost" in own | above, f"{name} is missing, and not reported"
            continue
        if values is None:
            right += rows
            continue
        if copy.shape != values.shape or not _same_type(copy, values):
            assert excused, f"{name} has another shape or type"
            continue
        places = json.loads(copy.attrs.get("shardkeep_repair", "[]"))
        got = _values(copy)
        lost = np.zeros(values.shape, bool)
        for place in places:
            lost[tuple(slice(a, a + b) for a, b in zip(place["start"], place["shape"], strict=True))] = True
        assert bool(places) == ("lost" in own) or not values.size or _attributes_only(found, name)
        for row in range(rows):
            where = (row,) if values.shape else ()
            if _same(values[where], got[where]):
                right += 1
                continue
            if excused:
                continue
            is_wrong = True if values.dtype.hasobject else values[where] != got[where]
            assert np.all(lost[where] | ~np.asarray(is_wrong)), f"row {row} of {name} is wrong, not reported"
    for name in _all_names(opened):
        known = name in original.datasets or name in original.others or name.startswith("/lost+found")
        unchecked = any("unchecked" in outcomes.get(one, set()) for one in _ancestors(name))
        assert known or unchecked, f"{name} was invented"
    if found.output is not None:
        opened.close()
    return right / total


def _attributes_only(found: RepairedFile, name: str) -> bool:
    reasons = [part.reason for part in found.parts if part.dataset == name and part.outcome == "lost"]
    return all("attribute" in one or "scale" in one for one in reasons)


def _same_type(copy: h5py.Dataset, values: Any) -> bool:
    return bool(copy.dtype.hasobject or copy.dtype == values.dtype)


def _all_names(opened: Any) -> list[str]:
    names: list[str] = []
    if opened:
        # h5py passes a name that is not UTF-8 as bytes.
        opened.visit_links(
            lambda name: names.append(f"/{name if isinstance(name, str) else decode_name(name)}")
        )
    return names


def damaged(good: bytes, chance: random.Random, metadata: list[int]) -> bytes:
    """Return a file with one random damage, half of the time near metadata."""
    size = chance.choice([1, 8, 64, 512, 4096])
    at = chance.choice(metadata) if chance.random() < 0.5 else chance.randrange(len(good))
    kind = chance.choice(["flip", "byte", "cut", "insert", "zero", "ones", "duplicate", "swap", "random"])
    data = bytearray(good)
    end = min(len(data), at + size)
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "byte":
        data[at] = chance.randrange(256)
    elif kind == "cut":
        del data[at if chance.random() < 0.7 else at // 4096 * 4096 :]
    elif kind == "insert":
        data[at:at] = chance.randbytes(size)
    elif kind == "zero":
        data[at:end] = bytes(end - at)
    elif kind == "ones":
        data[at:end] = b"\xff" * (end - at)
    elif kind == "random":
        data[at:end] = chance.randbytes(end - at)
    else:
        size = chance.choice([64, 512, 1024, 4096])
        one, two = (chance.randrange(len(data) // size) * size for _ in range(2))
        if kind == "duplicate":
            data[two : two + size] = data[one : one + size]
        else:
            data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]
    return bytes(data)


def _metadata(path: Path) -> list[int]:
    """Return the offsets of bytes that are not zero and not the contents of large datasets."""
    good = path.read_bytes()
    rows = bytearray(len(good))
    with h5py.File(path) as file:

        def visit(_: str, item: Any) -> None:
            if not isinstance(item, h5py.Dataset) or item.shape is None:
                return
            if item.chunks is not None:
                for number in range(item.id.get_num_chunks()):
                    info = item.id.get_chunk_info(number)
                    rows[info.byte_offset : info.byte_offset + info.size] = b"\1" * info.size
            elif item.id.get_offset() is not None:
                at, size = item.id.get_offset(), item.id.get_storage_size()
                rows[at : at + size] = b"\1" * size

        file.visititems(visit)
    return [at for at in range(len(good)) if good[at] and not rows[at]]


def _run(layout: str, first: int, count: int, folder: Path) -> float:
    """Damage a file many times; return the share of rows that were kept where no bytes were moved."""
    path = make(layout, folder / "good.h5")
    original, good, metadata = _Original.of(path), path.read_bytes(), _metadata(path)
    shares = []
    for number in range(first, first + count):
        chance = random.Random(f"{layout} {number}")
        bad = damaged(good, chance, metadata)
        path.write_bytes(bad)
        output = folder / f"out-{number}.h5"
        try:
            found = salvage.salvage_hdf5(str(path), str(output), tick=lambda size: None)
        except FormatError:
            assert not any(bad.startswith(b"\x89HDF", at) for at in (0, 512)), f"damage {number}"
            continue
        try:
            share = check(original, found)
            if len(bad) == len(good):
                shares.append(share)
        except Exception as error:
            error.args = (f"damage {number} of {layout}: {error}", *error.args[1:])
            raise
        if output.exists():
            output.unlink()
    return sum(shares) / max(1, len(shares))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kept_rows_are_those_that_were_written(layout: str, tmp_path: Path) -> None:
    _run(layout, 0, _FAST, tmp_path)


@pytest.mark.parametrize(
    ("layout", "number"),
    [
        pytest.param("compounds", 24, id="only the signature is left"),
        pytest.param("old groups", 44, id="the names of a group are random bytes"),
        pytest.param("attributes", 38, id="the object of a reference is lost"),
    ],
)
def test_kept_rows_are_those_that_were_written_after_a_rare_damage(
    layout: str, number: int, tmp_path: Path
) -> None:
    _run(layout, number, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_kept_rows_are_those_that_were_written_after_many_damages(layout: str, tmp_path: Path) -> None:
    assert _run(layout, _FAST, _SLOW, tmp_path) > 0.7


@pytest.mark.parametrize("opens", [True, False], ids=["HDF5 opens it", "HDF5 does not open it"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_new_file_has_everything(layout: str, opens: bool, tmp_path: Path) -> None:
    path = make(layout, tmp_path / "good.h5")
    original = _Original.of(path)
    output = str(tmp_path / "out.h5")
    with open(path, "rb") as file:
        (block, *_) = superblocks(file.fileno(), path.stat().st_size)
    if not opens:
        block = replace(block, data=b"")
    with salvage.Children(CHILD) as children:
        copied = copy_objects(children, str(path), block, output, salvages=True, tick=lambda size: None)
    found = RepairedFile(str(path), output, copied.kind, path.stat().st_size, copied.parts)
    lost = [part for part in found.parts if part.outcome == "lost"]
    if opens:
        assert check(original, found) == 1.0
        assert not lost
        _check_attributes(path, output)
    else:
        references = original.datasets.get("/pointers", ())
        assert check(original, found) >= 1.0 - len(references) / 1000
        assert all("refer" in part.reason or "scale" in part.reason for part in lost)


def _check_attributes(path: Path, output: str) -> None:
    with h5py.File(path) as one, h5py.File(output) as two:
        names = ["/"]
        one.visit(names.append)
        for name in names:
            assert set(one[name].attrs) == set(two[name].attrs)
            for key in one[name].attrs:
                if key not in ("DIMENSION_LIST", "REFERENCE_LIST"):
                    assert _same(one[name].attrs[key], two[name].attrs[key])
            if isinstance(one[name], h5py.Dataset):
                mine, theirs = one[name].id.get_create_plist(), two[name].id.get_create_plist()
                assert mine.get_layout() == theirs.get_layout()
                assert one[name].maxshape == two[name].maxshape
                assert one[name].compression == two[name].compression
        if "tiles" in one and len(one["tiles"].dims[0]):
            assert two["tiles"].dims[0][0].name == "/rows"
