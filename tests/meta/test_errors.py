"""The tree of errors: drawn as it is, picklable, with exit codes of the one table.

Covers `shardkeep.errors`.
"""

from __future__ import annotations

import pickle
import re
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from shardkeep import errors
from shardkeep.cli import ExitCode
from shardkeep.errors import LockTimeoutError, ShardkeepError, one_line
from tests.waiting import PATIENCE_S

CLASSES = [getattr(errors, name) for name in errors.__all__]
BUILTIN = re.compile(r"\((\w+)\)")


def make(cls: type[ShardkeepError]) -> ShardkeepError:
    error = cls("bad: do this", path="a.tfrecord", offset_bytes=648, record=3)
    if isinstance(error, LockTimeoutError):
        error.holder = {"host": "node1", "pid": 7}
    return error


def raise_it(cls: type[ShardkeepError]) -> None:
    raise make(cls)


def drawn_tree() -> dict[str, tuple[str | None, str | None]]:
    """Return name -> (parent, builtin base), read from the drawing in the module's docstring."""
    assert errors.__doc__ is not None
    parents: list[str] = []
    tree: dict[str, tuple[str | None, str | None]] = {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"    ((?:[│ ]   )*(?:[├└]── )?)(\w+Error)\b *(.*)$", line)
        if not found:
            continue
        depth = len(found[1]) // 4
        parents[depth:] = [found[2]]
        builtin = BUILTIN.match(found[3])
        tree[found[2]] = (parents[depth - 1] if depth else None, builtin[1] if builtin else None)
    return tree


@pytest.mark.parametrize("cls", CLASSES)
def test_pickle_keeps_everything(cls: type[ShardkeepError]) -> None:
    error = make(cls)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "bad: do this"
    assert again.__dict__ == error.__dict__
    assert (again.path, again.offset_bytes, again.record) == ("a.tfrecord", 648, 3)


def test_pickle_keeps_errno() -> None:
    error = errors.DurabilityError("full")
    error.errno = 28
    assert pickle.loads(pickle.dumps(error)).errno == 28


def test_every_error_crosses_a_process_pool() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for cls in CLASSES:
            error = pool.submit(raise_it, cls).exception(timeout=PATIENCE_S)
            assert type(error) is cls
            assert error.path == "a.tfrecord"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("größe", "größe"), ("a\nb\x1b\u202e", "a\\nb\\x1b\\u202e"), ("\udce9", "\\xe9"), ("", "")],
)
def test_characters_that_are_not_printable_are_escaped(text: str, expected: str) -> None:
    assert one_line(text) == expected


@pytest.mark.parametrize("cls", CLASSES)
def test_message_is_one_line_as_given(cls: type[ShardkeepError]) -> None:
    assert traceback.format_exception_only(make(cls)) == [f"shardkeep.errors.{cls.__name__}: bad: do this\n"]


def test_tree_is_as_drawn() -> None:
    real: dict[str, tuple[str | None, str | None]] = {}
    for cls in CLASSES:
        ours = [base.__name__ for base in cls.__bases__ if issubclass(base, ShardkeepError)]
        builtin = [base.__name__ for base in cls.__bases__ if not issubclass(base, ShardkeepError)]
        real[cls.__name__] = (
            ours[0] if ours else None,
            builtin[0] if builtin and cls is not ShardkeepError else None,
        )
    assert drawn_tree() == real


def test_nothing_is_left_out_of_all() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, ShardkeepError)
    }
    assert defined == set(errors.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_exit_code_is_in_the_table(cls: type[ShardkeepError]) -> None:
    assert ExitCode(cls.exit_code) not in (ExitCode.CLEAN, *[code for code in ExitCode if code > 128])


def test_exit_codes_of_the_kinds() -> None:
    expected = {
        "NotFoundError": ExitCode.NOT_FOUND,
        "LockTimeoutError": ExitCode.LOCKED,
        "InternalError": ExitCode.BUG,
        "CorruptRecordError": ExitCode.FINDINGS,
        "ExistsError": ExitCode.USAGE,
        "SchemaError": ExitCode.USAGE,
    }
    assert {name: getattr(errors, name).exit_code for name in expected} == expected
