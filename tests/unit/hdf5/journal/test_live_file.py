"""Which bytes reach the file before and after a commit; what a crash leaves is in the tests of the store."""

import errno
import os

import h5py
import pytest

from shardkeep.errors import DurabilityError
from shardkeep.hdf5.journal import live_file
from shardkeep.hdf5.journal.live_file import LiveFile
from shardkeep.hdf5.journal.paths import log_path


@pytest.fixture
def live(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(200))
    live = LiveFile(str(path), synced=False)
    yield live
    live.abandon()


def _on_disk(live):
    with open(live.path, "rb") as file:
        return file.read()


def _commit(live):
    live.write_commit(live.begin_commit())
    live.end_commit()


def test_committed_bytes_change_on_disk_only_when_applied(live):
    live.seek(100)
    live.write(b"new")
    live.change(110, b"row")
    assert bytes(live.read_at(100, 13)) == b"new" + bytes(7) + b"row"
    _commit(live)
    assert _on_disk(live) == bytes(200)
    live.apply_rows()
    assert _on_disk(live)[100:113] == bytes(10) + b"row"
    live.apply()
    assert _on_disk(live)[100:113] == b"new" + bytes(7) + b"row"
    assert live.unapplied_bytes == 0


def test_bytes_after_the_committed_ones_are_written_at_once(live):
    live.seek(195)
    live.write(b"0123456789")
    assert _on_disk(live) == bytes(200) + b"56789"
    assert live.changed_bytes > 0


def test_bytes_past_the_end_are_read_as_zeros(live):
    live.seek(200)
    live.write(b"12")
    buffer = bytearray(b"\xa5" * 8)
    live.read_into(201, buffer)
    assert buffer == b"2" + bytes(7)


def test_a_failed_write_is_raised_by_the_next_commit(live, monkeypatch):
    def fail(*_args):
        raise OSError(errno.ENOSPC, "full")

    live.seek(300)
    monkeypatch.setattr(live_file, "write_all", fail)
    live.write(b"x")
    monkeypatch.undo()
    with pytest.raises(DurabilityError, match="No space left"):
        live.begin_commit()


def test_a_file_that_was_replaced_takes_no_more_commits(live):
    os.rename(live.path, f"{live.path}.moved")
    with pytest.raises(DurabilityError, match="put it back"):
        live.begin_commit()


def test_allocate_returns_the_offset_of_a_chunk_without_writing_it(tmp_path):
    live = LiveFile(str(tmp_path / "a.h5"), synced=False)
    with h5py.File(live, "w", libver="v110") as file:
        dataset = file.create_dataset("x", (4,), "i8", chunks=(4,), maxshape=(None,))
        offset = live.allocate(lambda data: dataset.id.write_direct_chunk((0,), data), 32)
        assert dataset.id.get_chunk_info(0).byte_offset == offset
        live.write_rows(offset, memoryview(b"\x07" + bytes(31)))
    live.finish()
    assert not os.path.exists(log_path(live.path))
    with h5py.File(live.path) as file:
        assert file["x"][:].tolist() == [7, 0, 0, 0]
