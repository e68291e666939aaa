"""Values whose type in the file is not the one that HDF5 has for their dtype."""

from typing import Any

import h5py
import numpy as np
import pytest

from shardkeep.hdf5.storage.dtypes import flat_dtype
from shardkeep.hdf5.storage.exact_values import ExactValue, as_read, read_exactly
from tests.unit.hdf5.merge.file_types import TYPES, create_exactly, stored


@pytest.fixture
def file() -> Any:
    with h5py.File("exact", "w", driver="core", backing_store=False) as file:
        yield file


@pytest.mark.parametrize("name", TYPES)
def test_rows_have_the_bytes_of_the_file_and_become_what_h5py_reads(file: h5py.File, name: str) -> None:
    kind, rows = TYPES[name]
    dataset = create_exactly(file, "x", kind, rows)
    found = read_exactly(dataset.id, kind.dtype, slice(0, len(rows)))
    if name not in ("12 bits", "bfloat16"):  # converted, which changes no value
        assert found.tobytes() == rows.tobytes()
    assert as_read(found, kind, kind.dtype).tobytes() == dataset[:].tobytes()


@pytest.mark.parametrize("name", TYPES)
def test_a_value_is_written_with_its_type_and_bytes(file: h5py.File, name: str) -> None:
    kind, rows = TYPES[name]
    value = ExactValue.read(create_exactly(file, "x", kind, rows).id, flat_dtype(kind.dtype))
    assert value is not None
    copy = h5py.h5d.create(file.id, b"y", value.kind, value.space)
    value.write(copy)
    assert stored(h5py.Dataset(copy)) == (kind, rows.tobytes())


def test_an_ordinary_value_needs_no_exact_one(file: h5py.File) -> None:
    for value in (1, 2.5, b"text", "text", True, np.arange(3)):
        file.attrs["a"] = value
        attribute = file.attrs.get_id("a")
        assert ExactValue.read(attribute, attribute.dtype) is None


def test_compound_rows_keep_text_and_values_of_variable_length(file: h5py.File) -> None:
    text, letters = h5py.h5t.C_S1.copy(), h5py.h5t.C_S1.copy()
    text.set_size(h5py.h5t.VARIABLE)
    letters.set_size(3)
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, 11)
    kind.insert(b"full", 0, letters)
    kind.insert(b"any", 3, text)
    dataset = h5py.h5d.create(file.id, b"x", kind, h5py.h5s.create_simple((2,)))
    rows = np.array([(b"abc", "one"), (b"d", "three")], kind.dtype)
    value = ExactValue(kind.encode(), rows, kind.dtype)
    value.write(dataset)
    assert file["x"][:].tolist() == [(b"abc", b"one"), (b"d", b"three")]
    again = as_read(read_exactly(dataset, kind.dtype, slice(0, 2)), kind, kind.dtype)
    assert again.tolist() == [(b"abc", b"one"), (b"d", b"three")]
