import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.attributes import Attributes, as_attribute, read_attributes, same_value
from tests.unit.hdf5.dtypes import DTYPES, values_of

OTHERS = [
    1,
    1.5,
    True,
    1j,
    "täxt",
    b"bytes",
    ["a", "ö"],
    [],
    (1, 2),
    h5py.Empty("f4"),
    np.zeros(20_000),  # more than the 64 KiB of an object header
    np.array([np.arange(2, dtype="i4"), np.arange(3, dtype="i4")], h5py.vlen_dtype("i4")),
]


@pytest.mark.parametrize(
    "value", [*OTHERS, *(values_of(d, shape) for d in DTYPES for shape in ((), (3,), (2, 0)))], ids=repr
)
def test_attributes_of_every_type_round_trip(tmp_path, value):
    kept = as_attribute("a", value)
    with h5py.File(tmp_path / "x.h5", "w", libver="v110") as file:
        Attributes({"a": kept}).write(file)
        Attributes({"a": kept}).write(file.create_group("g"))
    with h5py.File(tmp_path / "x.h5") as file:
        for item in (file, file["g"]):
            again = read_attributes(item)[0].values["a"]
            assert same_value(again, kept)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        assert same_value(kept, (value, value.dtype))
    elif isinstance(value, (str, bytes, int, float, complex, h5py.Empty)):
        assert kept[0] == value


def test_attribute_value_is_a_copy():
    value = np.arange(3)
    kept = as_attribute("a", value)
    value += 1
    assert kept[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", 1),
        (3, 1),
        ("a\0", 1),
        ("_put", 1),
        ("DIMENSION_LIST", 1),
        ("a", None),
        ("a", object()),
        ("a", np.datetime64("now")),
        ("a", {"b": 1}),
        ("a", "x\0y"),
        ("CLASS", b"DIMENSION_SCALE"),
        ("a", np.array([None], h5py.ref_dtype)),
    ],
)
def test_invalid_attributes_are_refused(name, value):
    with pytest.raises(SchemaError) as caught:
        as_attribute(name, value)
    assert "\n" not in str(caught.value)
