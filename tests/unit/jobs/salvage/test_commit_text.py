from __future__ import annotations

import time

from shardkeep.jobs.salvage.commit_text import find_record
from tests.damaged_runs import make_run


def test_the_record_of_a_segment_that_hdf5_cannot_read(tmp_path):
    path = make_run(tmp_path / "run", 1, 2)[0, 1]
    data = path.read_bytes()
    path.write_bytes(b"\0" * 48 + data[48:])
    record = find_record(str(path))
    assert record is not None and (record.rank, record.sequence, record.step) == (0, 1, 20)
    assert record.datasets["x"].first_row == 3 and record.puts["v0"].sequence == 0
    assert record.crc32c is not None


def test_a_damaged_record_is_not_returned(tmp_path):
    path = make_run(tmp_path / "run", 1, 1)[0, 0]
    data = path.read_bytes()
    start = data.index(b'{"format":2,"rank":')
    stop = data.index(b'"previous"', start)
    for at in range(start, stop, 17):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert find_record(str(path)) is None
    path.write_bytes(data[: stop + 10])
    assert find_record(str(path)) is None


def test_files_without_a_record(tmp_path):
    for number, data in enumerate([b"", b"x", b'{"format":2,"rank":', b',"crc32c":"00000000"}' * 9]):
        path = tmp_path / str(number)
        path.write_bytes(data)
        assert find_record(str(path)) is None


def test_a_hostile_file_takes_limited_time(tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(b'{"format":2,"rank":,"crc32c":"00000000"}' * 100_000)
    start = time.process_time()
    assert find_record(str(path)) is None
    assert time.process_time() - start < 20
