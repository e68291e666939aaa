"""The application: from a request to the view that answers it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from shardkeep.errors import LockError, NotFoundError, ShardkeepError, UntrustedFileError
from shardkeep.viewer.access import Access
from shardkeep.viewer.locations import Location, Roots
from shardkeep.viewer.pages import render, static_file
from shardkeep.viewer.view import Answer, Json, Page, Query, View, Visit
from shardkeep.viewer.views import VIEWS

__all__ = ["create_app"]

_FAULT = (
    "This is a fault of the page, not of the file. The terminal of `shardkeep view` shows its trace:"
    " please report it."
)


def create_app(paths: Sequence[str], token: str, host: str = "127.0.0.1") -> Access:
    """Return the ASGI application of some files and folders.

    Parameters
    ----------
    paths : sequence of str
        Existing files and folders. Nothing outside them is read.
    token : str
        Secret part of every address.
    host : str
        The address that the server listens on; other names in ``Host`` are refused.

    Raises
    ------
    NotFoundError
        A path does not exist.
    """
    base = f"/{token}"
    roots = Roots(paths, base)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["shardkeep.path"]
        if path.startswith(b"static/"):
            response = static_file(path[len(b"static/") :].decode("ascii", "replace"))
        else:
            response = await run_in_threadpool(_answer, roots, base, path, Request(scope))
        await response(scope, receive, send)

    return Access(app, token, host)


def _answer(roots: Roots, base: str, path: bytes, request: Request) -> Response:
    is_part = "part" in request.query_params
    location: Location | None = None
    try:
        if not path.strip(b"/"):
            found = roots.locations()
            if len(found) == 1:
                return RedirectResponse(found[0].address())
            return _page(Page("home.html", {"roots": found, "base": base}), is_part=False)
        location = roots.find(path)
        fitting = [view for view in VIEWS if view.fits(location)]
        query = Query(request.query_params)
        view = next((one for one in fitting if one.name == query.text("view")), fitting[0])
        shown = view.show(Visit(location, query, query.text("part"), roots.locations()))
        return _response(shown, base, location, view, fitting, is_part)
    except (ShardkeepError, OSError) as error:
        message = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        status = _status(error)
    except Exception:
        logging.getLogger("uvicorn.error").exception("%s", request.url.path.removeprefix(base))
        message, status = _FAULT, 500
    values = {"message": message, "base": base, "location": location}
    return _page(Page("error.html", values), is_part=is_part, status=status)


def _response(
    shown: Answer, base: str, location: Location, view: View, fitting: list[View], is_part: bool
) -> Response:
    if isinstance(shown, Json):
        return JSONResponse(shown.value)
    if isinstance(shown, Page):
        tabs = [one for one in fitting if one is view or one.is_tab(location)]
        frame = {"base": base, "location": location, "view": view, "tabs": tabs}
        return _page(Page(shown.template, {**frame, **shown.values}), is_part=is_part)
    # The sandbox: a hostile image or text that a person opens on its own page runs nothing.
    headers = {"content-security-policy": "default-src 'none'; sandbox"}
    return Response(shown.content, media_type=shown.media_type, headers=headers)


def _page(page: Page, *, is_part: bool, status: int = 200) -> Response:
    return Response(render(page, is_part=is_part), status, media_type="text/html; charset=utf-8")


def _status(error: Exception) -> int:
    if isinstance(error, NotFoundError | FileNotFoundError):
        return 404
    if isinstance(error, UntrustedFileError | PermissionError):
        return 403
    return 423 if isinstance(error, LockError) else 422
