"""Batches in the outbox of a client: their numbers, their order, and the memory that they take."""

from shardkeep.collector.client.buffers import Payload
from shardkeep.collector.client.outbox import Outbox
from shardkeep.collector.client.spill import SpillFile


def _payload(size, **options):
    return Payload("x", 1, bytes(size), **options)


def test_payloads_share_batches_of_a_mebibyte_and_values_are_alone():
    outbox = Outbox(1 << 30)
    outbox.add_all([_payload(600_000), _payload(400_000), _payload(100_000), _payload(8, is_value=True)])
    sizes = []
    while (batch := outbox.next_to_send()) is not None:
        sizes.append([one.size_bytes for one in batch.payloads])
        outbox.note_sent()
    assert sizes == [[600_000, 400_000], [100_000], [8]]


def test_batches_take_memory_until_they_are_durable():
    outbox = Outbox(2000)
    for _ in range(2):
        outbox.add([_payload(500)])
    assert outbox.is_full
    while outbox.next_to_send() is not None:
        outbox.note_sent()
    outbox.note_durable(1)
    assert not outbox.is_full
    assert outbox.undelivered() == {"x": 1}
    outbox.note_durable(2)
    assert outbox.bytes == 0
    assert outbox.all_durable


def test_batches_that_the_collector_lacks_are_sent_again_in_order():
    outbox = Outbox(1 << 20)
    for _ in range(4):
        outbox.add([_payload(1)])
    for _ in range(3):
        outbox.note_sent()
    outbox.resend_after(1, 1)
    again = []
    while (batch := outbox.next_to_send()) is not None:
        again.append(batch.sequence)
        outbox.note_sent()
    assert again == [2, 3, 4]


def test_sequence_numbers_are_not_used_twice_and_gaps_are_announced(tmp_path):
    outbox = Outbox(1 << 20)
    outbox.use_spill(SpillFile(str(tmp_path), bytes(16), 0))
    outbox.add([Payload("x", 1, b"1")])
    outbox.add([Payload("x", 1, b"2")])
    outbox.spill_undelivered()  # the first is durable too, but this client was killed before the answer
    outbox.spill._lock.release()

    later = Outbox(1 << 20)
    later.use_spill(SpillFile(str(tmp_path), bytes(16), 0))
    assert later.announce_first() == 1
    later.resend_after(1, 1)
    mine = later.add([Payload("x", 1, b"3")]).sequence
    assert mine > 1 << 40
    assert later.next_to_send().sequence == 2
    later.note_sent()
    assert later.next_to_send() is None  # the collector would take it for one that was lost on the way
    assert later.all_sent
    assert not later.is_at_gap
    later.note_durable(2)
    assert later.is_at_gap
    assert later.announce_first() == mine
    later.resend_after(2, 2)
    assert later.next_to_send().sequence == mine
    later.spill.close()
