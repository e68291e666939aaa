"""Templates and the files that belong to them."""

from __future__ import annotations

import functools
import importlib.resources
import mimetypes
from datetime import datetime, timezone
from typing import Any

import jinja2
from starlette.responses import Response

from shardkeep._paths_in_messages import as_argument
from shardkeep.errors import one_line
from shardkeep.quantities import counted, human_bytes
from shardkeep.viewer.view import Page

__all__ = ["render", "static_file"]

_HERE = importlib.resources.files("shardkeep.viewer")


@functools.lru_cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("shardkeep.viewer"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "size": human_bytes,
        "number": lambda value: f"{value:,}",
        "rate": lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}",
        "counted": counted,
        "plural": lambda noun, count: noun if count == 1 else f"{noun}s",
        "shown": one_line,
        "argument": as_argument,
        "time": lambda seconds: datetime.fromtimestamp(seconds, timezone.utc).strftime(
            "%Y-%m-%d %H:%M:%S UTC"
        ),
    }
    return environment


def render(page: Page, *, is_part: bool) -> str:
    """Return the HTML of a page; with `is_part` only its content, which replaces that of a page."""
    values: dict[str, Any] = {"location": None, "tabs": [], "view": None, **page.values}
    layout = "part.html" if is_part else "page.html"
    return _environment().get_template(page.template).render({**values, "layout": layout})


@functools.lru_cache
def _static_names() -> frozenset[str]:
    return frozenset(one.name for one in _HERE.joinpath("static").iterdir())


def static_file(name: str) -> Response:
    """Return a script, a style sheet or an icon; the status is 404 if there is none of this name."""
    if name not in _static_names():
        return Response("no such file\n", 404, media_type="text/plain")
    content = _HERE.joinpath("static", name).read_bytes()
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, media_type=kind, headers={"cache-control": "private, max-age=3600"})
