"""Rows of a client are stored only in the form in which it has declared their dataset."""

import numpy as np
import pytest

from shardkeep.collector.protocol.messages import Kind, pack, unpack
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.server.declared import Forms
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, SchemaError

MEMORY = 16 << 20


@pytest.fixture
def store(tmp_path):
    one = Store(str(tmp_path / "all.h5"), synced=False)
    yield one
    one.close()


def _message(dtype, *, has_rows, rows=None):
    data = Schema("x", np.dtype(dtype), (), 64, (), rows).to_json()
    return unpack(pack(Kind.DECLARE, value=1, parts=has_rows, data=data))


def test_a_client_that_asks_sends_rows_in_the_form_that_it_is_told(store):
    forms = Forms()
    with pytest.raises(SchemaError, match="'x' was not declared; 3 rows"):
        forms.check("x", 3)
    assert forms.declare(_message("f8", has_rows=False), store, MEMORY)[1]
    known, is_new = Forms().declare(_message("i8", has_rows=False), store, MEMORY)
    assert (known.dtype, is_new) == (np.dtype("f8"), False)
    forms.check("x", 1)


@pytest.mark.parametrize(("dtype", "rows"), [("i8", None), ("f8", 10)])
def test_rows_of_another_form_are_refused_on_that_connection(store, dtype, rows):
    store.declare(Schema("x", np.dtype("f8"), (), 64))
    forms = Forms()
    if rows is None:
        assert forms.declare(_message(dtype, has_rows=True), store, MEMORY)[0].dtype == "f8"
    else:
        with pytest.raises(SchemaError):
            forms.declare(_message(dtype, has_rows=True, rows=rows), store, MEMORY)
    forms.declare(_message("f8", has_rows=False), store, MEMORY)  # asked by another thread
    with pytest.raises(SchemaError, match="2 rows of this client are not stored"):
        forms.check("x", 2)
    again = Forms()
    again.declare(_message("f8", has_rows=True), store, MEMORY)
    again.check("x", 2)


def test_what_is_refused_when_it_is_asked_for_changes_nothing(store):
    forms = Forms()
    forms.declare(_message("f8", has_rows=True), store, MEMORY)
    with pytest.raises(SchemaError):
        forms.declare(_message("f8", has_rows=False, rows=5), store, MEMORY)
    with pytest.raises(CollectorError):
        forms.declare(unpack(pack(Kind.DECLARE, data={"name": "x"})), store, MEMORY)
    forms.check("x", 1)
