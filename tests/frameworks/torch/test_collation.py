"""Collation of rows, with pinned memory by a substitute: these tests need no accelerator.

Covers `shardkeep.adapters.torch.collation` and `shardkeep.adapters.torch.framework`.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from shardkeep.adapters.torch import collate  # noqa: E402

ROWS = [{"x": torch.tensor([i, i]), "y": float(i), "s": b"s", "t": (i, torch.tensor(i))} for i in range(3)]


def test_without_an_accelerator_it_is_that_of_torch() -> None:
    expected = torch.utils.data.default_collate(ROWS)
    assert str(collate(ROWS)) == str(expected)


def test_with_an_accelerator_rows_are_written_into_pinned_memory_once(monkeypatch: Any) -> None:
    pinned: list[Any] = []
    empty = torch.empty

    def pageable(*args: Any, pin_memory: bool, **options: Any) -> Any:
        assert pin_memory
        pinned.append(empty(*args, **options))
        return pinned[-1]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", pageable)
    batch = collate(ROWS)
    monkeypatch.undo()
    assert [one.data_ptr() for one in pinned] == [batch["x"].data_ptr(), batch["t"][1].data_ptr()]
    assert str(batch) == str(torch.utils.data.default_collate(ROWS))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_batch_is_pinned_and_stays_where_it_is() -> None:
    batch = collate(ROWS)
    assert batch["x"].is_pinned()
    assert batch["x"].pin_memory().data_ptr() == batch["x"].data_ptr()


def test_workers_collate_as_torch_does() -> None:
    batches = torch.utils.data.DataLoader(ROWS, 3, collate_fn=collate, num_workers=1)
    assert str(next(iter(batches))) == str(torch.utils.data.default_collate(ROWS))


def test_rows_of_different_lengths_are_an_error() -> None:
    with pytest.raises(RuntimeError):
        collate([torch.zeros(1), torch.zeros(2)])
