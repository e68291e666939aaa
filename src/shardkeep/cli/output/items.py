"""Output of ``shardkeep cat`` and ``shardkeep follow``: records or rows, one after the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Any

import click
import numpy as np

from shardkeep.cli.output.console import print_json_line
from shardkeep.errors import one_line
from shardkeep.jobs.cat import RecordItem, RowItem, feature_type
from shardkeep.jobs.json_values import plain

__all__ = ["check_form", "print_files", "print_item", "print_items", "short_text"]

_SHOWN_VALUES = 8
_SHOWN_BYTES = 24
_SHOWN_CHARACTERS = 200


def check_form(*, raw: bool, as_json: bool) -> None:
    """Refuse ``--raw`` together with ``--json``."""
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")


def print_items(
    items: Iterable[RecordItem | RowItem], *, raw: bool, as_json: bool, at_once: bool = False
) -> None:
    """Print items one after the other.

    Parameters
    ----------
    items : iterable of RecordItem or RowItem
    raw : bool
        Write the bytes of each record unchanged, with nothing between two records.
    as_json : bool
        Print each item as one line of JSON.
    at_once : bool
        Flush standard output after each item.

    Raises
    ------
    click.UsageError
        If `raw` is set and an item is a row.
    """
    for item in items:
        if raw:
            if not isinstance(item, RecordItem):
                raise click.UsageError("--raw is for the records of TFRecord files")
            sys.stdout.buffer.write(item.data)
        elif as_json:
            print_json_line(item.to_dict())
        else:
            print_item(item)
        if at_once:
            sys.stdout.flush()


def print_files(items: Iterable[tuple[str, RecordItem | RowItem]], *, raw: bool, as_json: bool) -> None:
    """Print items of several files, with the path of each file before its items or, in JSON, in each."""
    for path, group in groupby(items, key=itemgetter(0)):
        if as_json:
            for _, item in group:
                print_json_line({"path": path} | item.to_dict())
            continue
        if not raw:
            click.echo(click.style(f"==> {one_line(path)} <==", bold=True))
        print_items((item for _, item in group), raw=raw, as_json=False)


def print_item(item: RecordItem | RowItem) -> None:
    """Print one record or one row."""
    if isinstance(item, RowItem):
        click.echo(f"{click.style(str(item.row), bold=True)}  {_row(item.value)}")
        return
    named = "" if item.features is not None or item.content is None else f", {item.content}"
    click.echo(f"{click.style(f'record {item.record}', bold=True)}  {len(item.data):,} bytes{named}")
    if item.features is None:
        click.echo(f"  {_bytes(item.data)}")
        return
    features = [(one_line(name), values) for name, values in sorted(item.features.items())]
    width = max((len(name) for name, _ in features), default=0)
    for name, values in features:
        shown = "" if values is None else _values(values)
        click.echo(f"  {name:{width}}  {feature_type(values):7}  {shown}".rstrip())


def _values(values: Any) -> str:
    shown = [_row(value) for value in values[:_SHOWN_VALUES]]
    rest = len(values) - len(shown)
    return " ".join(shown) + (f" … ({rest:,} more)" if rest else "")


def _bytes(data: bytes) -> str:
    text = repr(data[:_SHOWN_BYTES])[1:]
    return text if len(data) <= _SHOWN_BYTES else f"{text}… ({len(data):,} bytes)"


def _row(value: Any) -> str:
    if isinstance(value, bytes):
        return _bytes(value)
    if isinstance(value, np.void) and value.dtype.names is not None:
        return "  ".join(f"{one_line(name)}={_row(value[name])}" for name in value.dtype.names)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return one_line(_values(value))
    return short_text(plain(value))


def short_text(value: Any) -> str:
    """Return a value as printable text, cut after 200 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    cut = f"{text[:_SHOWN_CHARACTERS]}… ({len(text):,} characters)"
    return one_line(text if len(text) <= _SHOWN_CHARACTERS else cut)
