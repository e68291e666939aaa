"""Tests of the redo log.

Covers `shardkeep.hdf5.journal.paths`, `shardkeep.hdf5.journal.recovery` and
`shardkeep.hdf5.journal.superblock`.
"""

import os
import time

import pytest

from shardkeep.errors import FormatError
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import LogHeader, RedoLog, read_log, scan_log


def _log(tmp_path, records):
    path = log_path(str(tmp_path / "a.h5"))
    log = RedoLog(path, LogHeader(False, False, "boot", 100, 7))
    for record in records:
        log.append(*record)
    log.close(remove=False)
    return path


RECORDS = [(200, [(0, b"abc"), (50, b"")]), (200, []), (300, [(10, bytes(1000))])]


def test_records_are_read_as_they_were_appended(tmp_path):
    header, found = read_log(_log(tmp_path, RECORDS))
    assert (header.file_bytes, header.first_serial, header.synced, header.fresh) == (100, 7, False, False)
    assert [(one.serial, one.file_bytes, one.extents) for one in found] == [
        (7 + number, *record) for number, record in enumerate(RECORDS)
    ]


def test_a_truncated_log_keeps_its_complete_records(tmp_path):
    path = _log(tmp_path, RECORDS)
    with open(path, "rb") as file:
        data = file.read()
    counts = []
    for size in range(0, len(data) + 1, 3):
        os.truncate(path, 0)
        with open(path, "wb") as file:
            file.write(data[:size])
        found = read_log(path)
        counts.append(-1 if found is None else len(list(found[1])))
    assert counts == sorted(counts)
    assert set(counts) >= {-1, 0, 1, 2}


@pytest.mark.parametrize("place", [0.3, 0.6, 0.9])
def test_a_flipped_bit_ends_the_log(tmp_path, place):
    path = _log(tmp_path, RECORDS)
    with open(path, "r+b") as file:
        where = int(os.path.getsize(path) * place)
        file.seek(where)
        byte = file.read(1)[0]
        file.seek(where)
        file.write(bytes([byte ^ 4]))
    found = read_log(path)
    assert found is None or len(list(found[1])) < len(RECORDS)


def test_records_of_an_earlier_log_are_ignored(tmp_path):
    path = log_path(str(tmp_path / "a.h5"))
    log = RedoLog(path, LogHeader(False, False, "boot", 100))
    log.append(200, [(0, b"old")])
    with open(path, "rb") as file:
        old = file.read()
    log.restart(200)
    with open(path, "rb") as file:
        new = file.read()
    log.close(remove=False)
    with open(path, "wb") as file:
        file.write(new + old[len(new) :])
    header, found = read_log(path)
    assert (header.first_serial, list(found)) == (2, [])


def test_a_later_format_is_refused(tmp_path):
    path = log_path(str(tmp_path / "a.h5"))
    RedoLog(path, LogHeader(False, False, "boot", 0, format=9)).close(remove=False)
    with pytest.raises(FormatError, match="upgrade"):
        read_log(path)


def test_a_scan_of_a_whole_log_finds_what_is_read(tmp_path):
    path = _log(tmp_path, RECORDS)
    header, records = read_log(path)
    scan = scan_log(path, None)
    assert (scan.header, scan.records, scan.rest_bytes, scan.lost_commits) == (header, list(records), 0, 0)
    assert scan_log(f"{path}.gone", None) is None


def test_a_scan_counts_the_commits_that_a_damaged_byte_loses(tmp_path):
    path = _log(tmp_path, RECORDS)
    with open(path, "rb") as file:
        data = file.read()
    records = list(read_log(path)[1])
    starts = [data.index(b"SKRC")]
    for _ in records:
        size = int.from_bytes(data[starts[-1] + 8 : starts[-1] + 16], "little")
        starts.append(starts[-1] + 24 + size)
    for offset in range(len(data)):
        with open(path, "wb") as file:
            file.write(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        scan = scan_log(path, None)
        if offset < starts[0]:  # the header
            assert scan.header is None and scan.records == records and not scan.lost_commits
            continue
        number = sum(start <= offset for start in starts) - 1
        assert scan.records == records[:number]
        assert scan.rest_bytes == len(data) - starts[number]
        # A damaged start, serial or size of the last one is the same as the remains of a kill.
        is_last = number == len(records) - 1 and offset < starts[number] + 24
        assert scan.lost_commits == len(records) - number or (is_last and not scan.lost_commits)


def test_a_scan_of_a_log_that_is_cut_loses_no_commit(tmp_path):
    path = _log(tmp_path, RECORDS)
    size = os.path.getsize(path)
    for left in reversed(range(size)):
        os.truncate(path, left)
        scan = scan_log(path, None)
        assert not scan.lost_commits and len(scan.records) <= len(RECORDS)


def test_a_scan_of_a_hostile_log_takes_limited_time(tmp_path):
    path = _log(tmp_path, RECORDS[:1])
    with open(path, "ab") as file:
        file.write((b"SKRC" + bytes(4) + (1 << 20).to_bytes(8, "little") + bytes(8)) * 100_000)
    start = time.process_time()
    assert len(scan_log(path, None).records) == 1
    assert time.process_time() - start < 20
