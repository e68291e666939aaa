"""Tests of the redo log.

Covers `shardkeep.hdf5.journal.paths`, `shardkeep.hdf5.journal.recovery` and
`shardkeep.hdf5.journal.superblock`.
"""

import os

import pytest

from shardkeep.errors import FormatError
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import LogHeader, RedoLog, read_log


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
