"""Shared memory: who gets how much of it."""

from shardkeep.hdf5.collect.slots import SLOT_BYTES, ClientSlots, SlotBudget


def test_each_client_gets_half_of_what_is_left_at_most():
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


def test_what_a_client_writes_is_there():
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
