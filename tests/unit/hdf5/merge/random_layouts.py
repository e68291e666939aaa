"""Random HDF5 files for merges: versions, filters, indexes of chunks, limits, types, links and more."""

import contextlib
import random

import h5py
import numpy as np

from shardkeep.hdf5.storage.layout import write_rows

POINT = np.dtype([("a", "<i4"), ("b", ">f8")])
LIBVERS = ["earliest", "v108", "v110", "v112", "v114", "latest"]
NUMBERS = ["<i4", ">i4", "<u1", "<i8", "<u8", ">f8", "<f4", "<f2", "<c8", ">c16", "?"]
OTHERS = [
    "S5",
    "V3",
    POINT,
    np.dtype([("p", POINT), ("n", "<u2", (2,)), ("t", "S3")]),
    np.dtype([("x", "<i2"), ("y", "<f8")], align=True),
    np.dtype(("<i4", (2, 2))),
    np.dtype(("S2", (3,))),
    h5py.string_dtype("utf-8", 6),
    h5py.enum_dtype({"RED": 0, "GREEN": 7}, "<i2"),
]
VARIABLE = [
    h5py.string_dtype(),
    h5py.string_dtype("ascii"),
    h5py.vlen_dtype("<i4"),
    h5py.vlen_dtype(">f8"),
    h5py.vlen_dtype(POINT),
    h5py.vlen_dtype(np.dtype("?")),
    np.dtype([("t", h5py.string_dtype()), ("n", "<i4")]),
    np.dtype([("v", h5py.vlen_dtype(">i2")), ("n", "<i4")]),
    np.dtype((h5py.string_dtype(), (2,))),
]
WIDER = {  # what `on_mismatch="promote"` has to bring together
    "<i4": "<i8",
    ">i4": "<i4",
    "<i8": ">i8",
    "<u1": "<f4",
    "<f4": ">f8",
    "<f2": "<f4",
    "<c8": ">c16",
    "S5": "S8",
}
FILTERS = [
    (),
    ("gzip",),
    ("shuffle", "gzip"),
    ("fletcher32",),
    ("gzip", "fletcher32"),
    ("lzf",),
    ("shuffle", "lzf", "fletcher32"),
    ("scaleoffset",),
    ("nbit",),
    ("szip",),
]
ALLOCATIONS = [h5py.h5d.ALLOC_TIME_DEFAULT, h5py.h5d.ALLOC_TIME_EARLY, h5py.h5d.ALLOC_TIME_INCR]


class Series:
    """Files that a merge accepts: the same names and types, other rows and layouts.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        pick = self.random
        self.keyed = pick.random() < 0.3
        self.datasets = {}
        for name in pick.sample(["x", "g/y", "g/h/z", "Größe"], pick.randint(1, 2)):
            dtype = np.dtype(pick.choice(NUMBERS * 2 + OTHERS + VARIABLE))
            self.datasets[name] = (dtype, self._row_shape())
        # One layout for all files, so that chunks are copied; or one for each.
        self._layouts = {name: self._layout(name) for name in self.datasets} if pick.random() < 0.5 else None
        self.wider = pick.random() < 0.2  # for on_mismatch="promote"
        self._extras = pick.random() < 0.4
        self._values_without_rows = {}
        for name in pick.sample(["one", "two"], pick.randint(0, 2)):
            dtype = np.dtype(pick.choice(NUMBERS + OTHERS + VARIABLE))
            shape = (pick.choice([1, 3]),)
            self._values_without_rows[name] = dtype, shape, self._values(dtype, shape)

    def write(self, paths) -> None:
        """Write all files; rows and layouts differ."""
        keys = self._numbers.permutation(400)
        for number, path in enumerate(paths):
            pick = self.random
            version = pick.choice(LIBVERS)
            block = pick.choice([0, 0, 0, 512, 1024])
            rows = pick.choice([0, 1, 3, 8, 13, 16])
            with h5py.File(path, "w", libver=version, userblock_size=block) as file:
                for name, (dtype, row_shape) in self.datasets.items():
                    if self.wider and number:
                        dtype = self._wider(dtype)
                    count = rows if self.keyed else pick.choice([0, 1, 4, 5, 8, 12, 17])
                    self._dataset(file, name, dtype, (count, *row_shape))
                if self.keyed:
                    file["key"] = keys[number * 20 : number * 20 + rows]
                if self._extras:
                    self._extra(file)

    def _wider(self, dtype):
        if dtype == POINT:
            return np.dtype([("a", "<i8"), ("b", "<f8")])
        return next((np.dtype(wide) for one, wide in WIDER.items() if dtype == np.dtype(one)), dtype)

    def _row_shape(self):
        return self.random.choice([(), (), (), (3,), (5, 2), (4, 6), (0,), (1,)])

    def _layout(self, name):
        pick = self.random
        dtype, row_shape = self.datasets[name]
        filters = pick.choice(FILTERS)
        if dtype.hasobject or dtype.itemsize == 0 or dtype.kind not in "iu":
            filters = tuple(one for one in filters if one not in ("scaleoffset", "nbit", "szip"))
        if dtype.hasobject and pick.random() < 0.7:
            filters = ()
        limits = [pick.choice(["same", "more", "none"]) for _ in (0, *row_shape)]
        chunked = bool(filters) or limits != ["same"] * len(limits) or pick.random() < 0.4
        wide = pick.random() < 0.2
        chunks = [pick.choice([1, 2, 4, 5])] + [
            max(1, pick.choice([1, 2, size, size + 2 if wide else size])) for size in row_shape
        ]
        return {
            "filters": filters,
            "limits": limits,
            "chunks": chunks if chunked else None,
            "fill": pick.random() < 0.3,
            "allocation": pick.choice(ALLOCATIONS),
        }

    def _dataset(self, file, name, dtype, shape) -> None:
        pick = self.random
        layout = self._layouts[name] if self._layouts else self._layout(name)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        limits = shape
        if layout["chunks"]:
            limits = tuple(
                {"same": size, "more": size + 7, "none": h5py.h5s.UNLIMITED}[limit]
                for size, limit in zip(shape, layout["limits"], strict=True)
            )
            chunks = tuple(
                one if limit == h5py.h5s.UNLIMITED else max(1, min(one, limit))
                for one, limit in zip(layout["chunks"], limits, strict=True)
            )
            limits = tuple(
                limit if limit == h5py.h5s.UNLIMITED else max(limit, one)
                for limit, one in zip(limits, chunks, strict=True)
            )
            properties.set_chunk(chunks)
            self._filter(properties, layout["filters"])
        with contextlib.suppress(ValueError, TypeError):
            properties.set_alloc_time(layout["allocation"])
        if layout["fill"] and dtype.kind in "iufS" and dtype.subdtype is None:
            properties.set_fill_value(np.array(3, dtype) if dtype.kind != "S" else np.array(b"z", dtype))
        kind = h5py.h5t.py_create(dtype, logical=True)
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        links.set_char_encoding(h5py.h5t.CSET_UTF8)
        space = h5py.h5s.create_simple(shape, limits)
        try:
            made = h5py.h5d.create(file.id, name.encode(), kind, space, properties, links)
        except (ValueError, RuntimeError):  # a filter that is not for this type, or early allocation
            plain = None if limits == shape else _plain(chunks)
            made = h5py.h5d.create(file.id, name.encode(), kind, space, plain, links)
        dataset = h5py.Dataset(made)
        if 0 in shape or pick.random() < 0.1:
            return
        start = pick.choice([0, 0, 0, shape[0] // 2])  # the rest is never written
        write_rows(dataset, start, self._values(dtype, (shape[0] - start, *shape[1:])))

    def _filter(self, properties, filters) -> None:
        for one in filters:
            if one == "gzip":
                properties.set_deflate(1)
            elif one == "szip":
                if h5py.h5z.filter_avail(h5py.h5z.FILTER_SZIP):
                    properties.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 2)
            elif one == "scaleoffset":
                properties.set_scaleoffset(h5py.h5z.SO_INT, 0)
            elif one == "nbit":
                properties.set_filter(h5py.h5z.FILTER_NBIT, 0, ())
            elif one == "lzf":
                properties.set_filter(h5py.h5z.FILTER_LZF, h5py.h5z.FLAG_OPTIONAL)
            elif one == "shuffle":
                properties.set_shuffle()
            else:
                properties.set_fletcher32()

    def _values(self, dtype, shape):
        if dtype.subdtype is not None:
            return self._values(dtype.base, (*shape, *dtype.shape))
        if dtype.names is not None:
            values = np.zeros(shape, dtype)
            for name in dtype.names:
                values[name] = self._values(dtype[name], shape)
            return values
        if dtype.hasobject:
            values = np.empty(shape, dtype)
            flat = values.reshape(-1)
            for i in range(flat.size):
                flat[i] = self._variable(dtype)
            return values
        enum = None if dtype.kind == "b" else h5py.check_enum_dtype(dtype)
        if enum is not None:
            return self._numbers.choice(list(enum.values()), shape).astype(dtype)
        if dtype.kind == "b":
            return self._numbers.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu":
            return self._numbers.integers(0, 100, shape).astype(dtype)
        if dtype.kind in "fc":
            return self._numbers.integers(-50, 50, shape).astype(dtype) / 4
        letters = self._numbers.integers(97, 123, (*shape, dtype.itemsize), np.uint8)
        return np.ascontiguousarray(letters).view(dtype).reshape(shape)

    def _variable(self, dtype):
        base = h5py.check_vlen_dtype(dtype)
        count = self.random.choice([0, 1, 2, 5])
        if base is None or base in (str, bytes):
            return "".join(self.random.choice("abcxyz") for _ in range(count))
        return self._values(np.dtype(base), (count,))

    def _extra(self, file) -> None:
        first = next(iter(self.datasets))
        file.attrs["run"] = "of all"
        file[first].attrs["unit"] = np.arange(3)
        file[first].attrs["p"] = np.zeros(2, POINT)
        for name, (dtype, shape, values) in self._values_without_rows.items():
            kind, space = h5py.h5t.py_create(dtype, logical=True), h5py.h5s.create_simple(shape)
            one = h5py.h5s.create(h5py.h5s.SCALAR)
            made = h5py.h5d.create(file.id, name.encode(), kind, one)
            memory = h5py.h5t.py_create(dtype)
            made.write(one, one, np.ascontiguousarray(values[:1]), memory)
            h5py.h5a.create(file[first].id, name.encode(), kind, space).write(values, memory)
        file["words"] = h5py.SoftLink(f"/{first}")
        file["again"] = file[first]
        file["type"] = np.dtype([("q", "<i4"), ("e", h5py.enum_dtype({"A": 1}, "<u1"))])
        file.create_group("empty").attrs["t"] = "text"
        file.create_dataset("nothing", data=h5py.Empty("f4"))


def _plain(chunks):
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_chunk(chunks)
    return properties
