"""Every type that rows may have, values of each, and a check that they came back as they were."""

import h5py
import numpy as np

_PLAIN = "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 g c8 c16 ? S5 V3 >i2 >u4 >i8 >f2 >f4 >f8 >c8 >c16"
DTYPES = [
    *_PLAIN.split(),
    np.dtype([("a", "i4"), ("b", ">f8", (2,)), ("s", "S3"), ("ok", "?")]),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype([("a", [("x", "f4"), ("y", ">i2")]), ("z", "c8")]),
    h5py.enum_dtype({"A": 0, "B": 1, "C": 77}, basetype="u1"),
    h5py.enum_dtype({"MINUS": -1, "PLUS": 119}, basetype=">i4"),
    h5py.string_dtype("utf-8", 7),
]


def values_of(dtype, shape):
    """Return an array that has many different values."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    members = h5py.check_enum_dtype(dtype) if dtype.kind != "b" else None
    if members is not None:
        flat = np.resize(np.array(list(members.values()), dtype.str), count).astype(dtype)
    elif dtype.names:
        flat = np.zeros(count, dtype)
        for name in dtype.names:
            field = dtype[name]
            flat[name] = values_of(field.base, (count, *field.shape))
    elif dtype.kind in "SV":
        flat = np.array([b"%d" % (i % 97) for i in range(count)] or [b""])[:count].astype(dtype)
    elif dtype.kind == "b":
        flat = np.arange(count) % 3 == 0
    else:
        flat = (np.arange(count) % 120 - (dtype.kind in "ifc")).astype(dtype)
    return flat.reshape(shape)


def check_rows(path, name, rows):
    """Compare a dataset with an array: values, dtype, byte order, members of an enum."""
    with h5py.File(path) as file:
        back = file[name][:]
        assert file[name].dtype == rows.dtype
        assert h5py.check_enum_dtype(file[name].dtype) == h5py.check_enum_dtype(rows.dtype)
        assert h5py.check_string_dtype(file[name].dtype) == h5py.check_string_dtype(rows.dtype)
    assert back.dtype.byteorder == rows.dtype.byteorder
    assert back.shape == rows.shape
    assert (back == rows).all()
