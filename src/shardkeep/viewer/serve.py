"""The server of the page, on one address of this machine."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError
from shardkeep.files.kinds.urls import is_url
from shardkeep.viewer.host import is_loopback

__all__ = ["serve"]


def serve(
    paths: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    started: Callable[[str], object],
) -> None:
    """Serve the page until the process is interrupted.

    Parameters
    ----------
    paths : sequence of str
        Files and folders to show. Nothing outside them is read, and nothing is written.
    host : str
        Address to listen on. By default only this machine can connect.
    port : int
        TCP port; 0 for any free one.
    token : str, optional
        Secret part of the address; by default a new random one.
    started : callable
        Called with the address of the page once the server accepts connections.

    Raises
    ------
    NotFoundError
        A path does not exist.
    PlanError
        `host` is not of this machine only and `token` is None, or shorter than 16 characters, or `port` is
        taken, or a path is a URL.
    MissingExtraError
        Starlette, uvicorn or Jinja2 are not installed: ``pip install 'shardkeep[viewer]'``.
    """
    for name in ("starlette", "uvicorn", "jinja2"):
        import_extra(name, "the page")
    import uvicorn

    from shardkeep.viewer.app import create_app

    for path in paths:
        if is_url(path):
            raise PlanError(f"{path} is a URL; the page shows local files: copy or mount it first")
    if not is_loopback(host) and (token is None or len(token) < 16):
        raise PlanError(
            f"host {host} can be reached from other machines; pass a token of at least 16 characters"
        )
    token = token or secrets.token_urlsafe(16)
    if not token.replace("-", "").replace("_", "").isalnum() or not token.isascii():
        raise PlanError("token must consist of letters, digits, - and _")
    app = create_app(paths, token, host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise PlanError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    with listener:
        shown = f"[{host}]" if ":" in host else host
        started(f"http://{shown}:{listener.getsockname()[1]}/{token}/")
        config = uvicorn.Config(app, log_level="warning", server_header=False, ws="none", lifespan="off")
        uvicorn.Server(config).run(sockets=[listener])
