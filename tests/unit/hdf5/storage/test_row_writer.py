import io
import threading

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.layout import chunk_rows_of
from shardkeep.hdf5.storage.row_writer import RowWriter

F4 = np.dtype("f4")


def _rows(start, stop):
    return np.repeat(np.arange(start, stop, dtype="f4")[:, None], 3, axis=1)


@given(
    st.lists(st.tuples(st.sampled_from(["add", "part", "flush"]), st.integers(0, 25)), max_size=12),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_rows_keep_their_order_for_any_calls(calls, chunk_rows, compressed):
    filters = ((h5py.h5z.FILTER_DEFLATE, h5py.h5z.FLAG_OPTIONAL, (1,)),) if compressed else ()
    with h5py.File(io.BytesIO(), "w") as file:
        writer = RowWriter("g/x", F4, (3,), chunk_rows=chunk_rows, filters=filters)
        row = 0
        for what, count in calls:
            if what == "add":
                writer.add(_rows(row, row + count), lambda: file)
                row += count
            elif what == "part":
                for i in range(row, row + count):
                    writer.parts.append(_rows(i, i + 1).tobytes())
                row += count
            else:
                assert writer.flush(lambda: file) == row
                assert file["g/x"][:, 0].tolist() == list(range(row))
            assert writer.rows == row
        assert writer.finish(lambda: file) == row
        assert (file["g/x"][:] == _rows(0, row)).all()
        assert file["g/x"].chunks == (chunk_rows, 3)
        assert writer.crc == content_crc(_rows(0, row))


def test_few_rows_are_stored_without_chunks():
    with h5py.File(io.BytesIO(), "w") as file:
        writer = RowWriter("x", F4, (3,))
        writer.add(_rows(0, 5), lambda: file)
        writer.finish(lambda: file)
        assert file["x"].chunks is None
        writer.reset()
        del file["x"]
        many = chunk_rows_of(F4, (3,)) + 1
        writer.add(_rows(0, many), lambda: file)
        writer.finish(lambda: file)
        assert file["x"].chunks == (many - 1, 3)


def test_parts_appended_during_settle_stay():
    with h5py.File(io.BytesIO(), "w") as file:
        writer = RowWriter("x", F4, (3,), chunk_rows=4)
        writer.parts += [_rows(i, i + 1).tobytes() for i in range(4)]

        def group():
            writer.parts.append(_rows(9, 10).tobytes())
            return file

        writer.settle(group)
        assert (writer.written, len(writer.parts), writer.rows) == (4, 1, 5)
        writer.reset()
        assert writer.rows == 1


def test_part_appended_between_two_steps_of_settle_stays():
    class Racing(list):
        def __getitem__(self, key):
            taken = super().__getitem__(key)
            self.append(_rows(9, 10).tobytes())
            return taken

    with h5py.File(io.BytesIO(), "w") as file:
        writer = RowWriter("x", F4, (3,), chunk_rows=4)
        writer.parts = Racing(_rows(i, i + 1).tobytes() for i in range(4))
        writer.settle(lambda: file)
        assert (writer.written, len(writer.parts)) == (4, 1)
        writer.settle(lambda: file)
        assert writer.rows == 6


def test_threads_that_append_parts_lose_no_rows():
    with h5py.File(io.BytesIO(), "w") as file:
        writer = RowWriter("x", np.dtype("i8"), ())
        done = threading.Event()

        def push(first):
            for i in range(first, first + 20_000):
                writer.parts.append(i.to_bytes(8, "little"))

        threads = [threading.Thread(target=push, args=(first,)) for first in (0, 20_000)]

        def wait():
            for one in threads:
                one.start()
            for one in threads:
                one.join()
            done.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        while not done.is_set():
            writer.settle(lambda: file)
        waiter.join()
        writer.finish(lambda: file)
        back = file["x"][:]
    assert sorted(back.tolist()) == list(range(40_000))
    for first in (0, 20_000):
        mine = back[(back >= first) & (back < first + 20_000)]
        assert (np.diff(mine) == 1).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", "i1", "u1", "i8", ">i2", "u8"])
def test_packed_python_number_equals_numpy(dtype):
    writer = RowWriter("x", np.dtype(dtype), ())
    assert writer.python_type is (float if "f" in dtype else int)
    for value in (0, 1, 7, 100):
        value = writer.python_type(value) / 3 if "f" in dtype else value
        assert writer.pack(value) == np.array(value).astype(dtype).tobytes()


def test_python_numbers_that_do_not_fit_are_refused():
    enum = h5py.enum_dtype({"A": 0})
    for dtype, shape in ((enum, ()), (np.dtype("f8"), (1,)), (np.dtype("?"), ()), (np.dtype("S4"), ())):
        assert RowWriter("x", dtype, shape).python_type is None
