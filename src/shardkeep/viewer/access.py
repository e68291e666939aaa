"""Protection of the page against other sites and other users.

The address has a secret token, so no other page can guess an address and no cookie is needed: a page of
another site has no means to send requests that count. The checks here are the second line: names of this
machine in ``Host`` (against DNS rebinding), no requests from other sites, no methods but GET and HEAD, and
headers that forbid the browser every request to the outside.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shardkeep.viewer.host import is_loopback

__all__ = ["Access"]

_HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        b" form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
}


class Access:
    """Middleware that lets only the person with the token in.

    Parameters
    ----------
    app : ASGI application
        It receives the path after the token, as ``scope["shardkeep.path"]``, in bytes.
    token : str
    host : str
        The address that the server listens on.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self._app = app
        self._token = token.encode()
        self._names = {"localhost", host.lower()}
        if not is_loopback(host):
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        refusal = self._refusal(scope, headers)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message.setdefault("headers", [])
                present = {name for name, _ in message["headers"]}
                message["headers"] += [
                    (name, value) for name, value in _HEADERS.items() if name not in present
                ]
                if b"cache-control" not in present:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        if refusal is not None:
            await PlainTextResponse(refusal[1] + "\n", refusal[0])(scope, receive, guarded)
            return
        _, _, rest = scope["raw_path"].lstrip(b"/").partition(b"/")
        await self._app({**scope, "shardkeep.path": rest}, receive, guarded)

    def _refusal(self, scope: Scope, headers: dict[bytes, Any]) -> tuple[int, str] | None:
        if not self._is_here(headers.get(b"host", b"").decode("latin-1")):
            return 421, "this is not the address of this page; use the address that `shardkeep view` printed"
        site = headers.get(b"sec-fetch-site", b"none")
        # A person may follow a link from a notebook on another port: that is a new page, not a request of it.
        opens_page = (
            headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
        )
        if site not in (b"none", b"same-origin") and not opens_page:
            return 403, "requests from other sites are refused"
        if scope["method"] not in ("GET", "HEAD"):
            return 405, "this page only reads"
        token = scope["raw_path"].lstrip(b"/").partition(b"/")[0]
        if not hmac.compare_digest(token, self._token):
            return 403, "the address lacks the token; use the address that `shardkeep view` printed"
        return None

    def _is_here(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        name = name.strip("[]").lower()
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)  # a number cannot be bound to another machine by a name server
        except ValueError:
            return False
        return True
