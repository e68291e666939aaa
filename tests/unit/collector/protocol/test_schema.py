"""Tests of the schema.

Covers `shardkeep.collector.protocol.payload`.
"""

import json

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shardkeep.collector.protocol.payload import decode_rows, encode_rows
from shardkeep.collector.protocol.schema import Schema, dtype_from_json, dtype_to_json
from shardkeep.errors import CollectorError
from shardkeep.hdf5.storage.dtypes import TEXT, same_dtype

TYPES = [
    np.dtype(one)
    for one in ("?", "i1", ">i4", "<u8", "f2", ">f8", "c16", "S5", "V7", [("a", "<f4"), ("b", "S3", (2,))])
] + [
    TEXT,
    h5py.enum_dtype({"no": 0, "yes": 1}, "i1"),
    np.dtype([("t", TEXT), ("x", "<f8")]),
    np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 8], "itemsize": 24}),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_dtype_is_the_same_after_json(dtype):
    schema = Schema("g/x", dtype, (2, 3), 4, ((1, 1, (4,)),))
    found = Schema.from_json(json.loads(json.dumps(schema.to_json())))
    assert same_dtype(found.dtype, dtype)
    assert (found.name, found.row_shape, found.chunk_rows, found.filters) == (
        "g/x",
        (2, 3),
        4,
        ((1, 1, (4,)),),
    )
    assert found.fits(schema)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda one: (
        st.lists(one, max_size=4)
        | st.dictionaries(
            st.sampled_from(["fields", "itemsize", "base", "shape", "enum", "members", "text"]), one
        )
    ),
    max_leaves=8,
)


@given(_JSON)
def test_hostile_types_are_refused_or_valid(data):
    schema = {**Schema("x", np.dtype("i4"), ()).to_json(), "dtype": data}
    try:
        dtype = Schema.from_json(schema).dtype
    except CollectorError:
        return
    assert same_dtype(dtype_from_json(dtype_to_json(dtype)), dtype)


@pytest.mark.parametrize("bad", ["O", "|O", "M8[s]", "i4,f8", "U5", "no", "(1000000000,)f8"])
def test_types_that_hdf5_does_not_have_are_refused(bad):
    with pytest.raises((ValueError, TypeError)):
        dtype_from_json(bad)


@given(hnp.arrays(np.dtype("i4,f8"), st.tuples(st.integers(0, 5), st.just(2))))
def test_rows_of_fixed_size_are_the_same_after_encoding(rows):
    assert (
        decode_rows(memoryview(encode_rows(rows)), len(rows), rows.dtype, (2,)) == rows
    ).all() or np.isnan(rows["f1"]).any()


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=6
    ),
    st.data(),
)
def test_text_is_the_same_after_encoding_and_random_bytes_are_refused(words, data):
    rows = np.array([one.encode() for one in words] + [None], object)[:-1].astype(TEXT)
    encoded = bytes(encode_rows(rows))
    assert decode_rows(memoryview(encoded), len(rows), TEXT, ()).tolist() == rows.tolist()
    cut = data.draw(st.integers(0, len(encoded)))
    if cut < len(encoded):
        with pytest.raises(CollectorError):
            decode_rows(memoryview(encoded[:cut]), len(rows), TEXT, ())


def test_text_in_compound_rows_is_the_same_after_encoding():
    kind = np.dtype([("t", TEXT), ("x", "<f8"), ("u", TEXT, (2,))])
    rows = np.zeros(2, kind)
    rows["t"], rows["x"] = [b"one", b"two"], [1, 2]
    rows["u"] = [[b"a", b""], [b"bc", b"d"]]
    found = decode_rows(memoryview(encode_rows(rows)), 2, kind, ())
    assert all((found[name] == rows[name]).all() for name in kind.names)
