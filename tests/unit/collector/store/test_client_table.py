import numpy as np

from shardkeep.collector.store.client_table import LEFT, ClientEntry
from shardkeep.collector.store.store import Store


def _entry(number, **values):
    return ClientEntry(number.to_bytes(16, "little"), number % 4, 4, **values)


def test_entries_are_read_as_they_were_committed(tmp_path):
    path = str(tmp_path / "all.h5")
    entries = [_entry(number, sequence=number + 1, rows=10 * number) for number in range(2500)]
    store = Store(path, synced=False)
    for entry in entries:
        store.clients.update(entry)
    store.close()
    store = Store(path, synced=False)
    assert [store.clients.find(one.id) for one in entries] == entries
    assert store.clients.find(bytes(15) + b"x") is None
    store.close()


def test_the_newest_client_of_each_rank_decides_whether_it_has_left(tmp_path):
    store = Store(str(tmp_path / "all.h5"), synced=False)
    for number, closed in ((1, LEFT), (2, LEFT), (5, 0)):  # number 5 is rank 1 again
        store.clients.update(_entry(number, closed=closed))
    assert store.clients.finished() == ({2}, 4)
    assert store.clients.is_newcomer(_entry(6))
    assert not store.clients.is_newcomer(_entry(3))
    store.clients.end_run()
    assert store.clients.finished() == (set(), 0)
    store.close()


def test_an_entry_of_the_dataset_has_the_documented_fields(tmp_path):
    store = Store(str(tmp_path / "all.h5"), synced=False)
    store.clients.update(_entry(3, sequence=9, rows=8))
    store.commit()
    (row,) = store._file["_collector/clients"][:]
    assert row.dtype.names == ("id", "rank", "world_size", "sequence", "rows", "closed")
    assert np.array(row[["rank", "world_size", "sequence", "rows", "closed"]]).tolist() == (3, 4, 9, 8, 0)
    store.close()
