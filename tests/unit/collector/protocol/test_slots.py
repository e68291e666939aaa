"""Shared memory: the budget of each client, and the checks that a client makes."""

import fcntl
import os

import pytest

from shardkeep.collector.protocol.slots import SLOT_BYTES, ClientSlots, SlotBudget


def test_each_client_gets_at_most_half_of_the_rest():
    budget = SlotBudget(32 * SLOT_BYTES)
    given = []
    while (slots := budget.open()) is not None:
        given.append(slots)
    assert [one.bytes // SLOT_BYTES for one in given] == [16, 8, 4, 2]
    for one in given:
        budget.close(one)
    again = budget.open()
    assert again.bytes == 16 * SLOT_BYTES
    budget.close(again)


def test_the_collector_reads_the_bytes_that_a_client_writes():
    budget = SlotBudget(32 * SLOT_BYTES)
    slots = budget.open()
    client = ClientSlots(slots.address)
    places = [client.take() for _ in range(16)]
    assert client.take() is None
    assert client.are_short
    assert sorted(offset for offset, _ in places) == [place * SLOT_BYTES for place in range(16)]
    for offset, array in places:
        array[:] = offset // SLOT_BYTES
    for offset, _ in places:
        assert bytes(slots.read(offset, SLOT_BYTES)) == bytes([offset // SLOT_BYTES]) * SLOT_BYTES
    client.give_back(places[3][0])
    assert client.take()[0] == places[3][0]
    budget.close(slots)


def _address(fd, count):
    return {"path": f"/proc/{os.getpid()}/fd/{fd}", "inode": os.fstat(fd).st_ino, "count": count}


def test_the_length_of_the_memory_cannot_be_changed():
    budget = SlotBudget(32 * SLOT_BYTES)
    slots = budget.open()
    fd = os.open(slots.address["path"], os.O_RDWR)
    for size in (0, slots.bytes - 1, slots.bytes + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(fd)
    budget.close(slots)


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_file_of_this_user_is_not_used_as_slots(tmp_path, place):
    path = str(tmp_path / "model.bin") if place == "disk" else f"/dev/shm/shardkeep-{os.getpid()}-model.bin"
    content = b"P" * (2 * SLOT_BYTES)
    try:
        with open(path, "w+b") as file:
            file.write(content)
            file.flush()
            inode = os.fstat(file.fileno()).st_ino
            for where in (path, f"/proc/{os.getpid()}/fd/{file.fileno()}"):
                with pytest.raises((OSError, ValueError)):
                    ClientSlots({"path": where, "inode": inode, "count": 2})
            file.seek(0)
            assert file.read() == content
    finally:
        os.unlink(path)


@pytest.mark.parametrize("seals", [None, 0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW])
def test_memory_without_seals_is_not_used(seals):
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING if seals is not None else 0)
    os.ftruncate(fd, 2 * SLOT_BYTES)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(OSError, match="not sealed memory"):
        ClientSlots(_address(fd, 2))
    os.close(fd)


@pytest.mark.parametrize(
    "changes",
    [
        {"path": "/dev/zero"},
        {"path": "/proc/self/../../etc/hostname"},
        {"inode": 1},
        {"inode": "x"},
        {"count": 0},
        {"count": -1},
        {"count": 1 << 40},
        {"count": 3},
    ],
)
def test_an_invalid_slot_address_is_refused(changes):
    budget = SlotBudget(32 * SLOT_BYTES)
    slots = budget.open()
    with pytest.raises((OSError, ValueError)):
        ClientSlots({**slots.address, **changes})
    ClientSlots(slots.address)
    budget.close(slots)
