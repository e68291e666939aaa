"""CURVE keys, which decide which clients may connect to a collector.

``shardkeep collect --new-key run.key`` writes two files that only their owner can read::

    run.key            for the collector: its secret key, and the public keys of clients it takes
    run.key.client     for the clients: the collector's public key, and their own pair

Both are JSON. Copy only the second to the hosts of the clients. CURVE (CurveZMQ, RFC 26) encrypts, and
authenticates each side to the other with a key that was never sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardkeep.collector.protocol.zeromq import zmq_module
from shardkeep.errors import CollectorError, ExistsError, FormatError, NotFoundError
from shardkeep.files.durable import durably
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.publish import publish_sidecar
from shardkeep.files.sidecar import make_sidecar

if TYPE_CHECKING:
    import zmq

__all__ = [
    "ClientKey",
    "ServerKey",
    "ZapAuthenticator",
    "client_key_path",
    "new_key",
    "read_client_key",
    "read_server_key",
]

_REQUESTS_PER_STEP = 256


@dataclass(frozen=True)
class ServerKey:
    """The keys of a collector."""

    public: bytes
    secret: bytes
    clients: frozenset[bytes]


@dataclass(frozen=True)
class ClientKey:
    """The keys of its clients."""

    server: bytes
    public: bytes
    secret: bytes


def client_key_path(path: str) -> str:
    """Return the path of the clients' key file for that of the collector."""
    return f"{path}.client"


def new_key(path: str, *, replace: bool = False) -> tuple[str, str]:
    """Make a pair of key files; return their paths, the collector's first.

    Raises
    ------
    ExistsError
        A file exists, and `replace` is false; or it is not a regular file.
    """
    zmq = zmq_module()
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    server = {"public": server_public, "secret": server_secret, "clients": [client_public]}
    client = {"server": server_public, "public": client_public, "secret": client_secret}
    names = path, client_key_path(path)
    for name in names:
        refuse_special(name)
        if not replace and os.path.lexists(name):
            raise _in_use(name)
    for name, values in zip(names, (server, client), strict=True):
        _write_private(name, json.dumps(values, default=bytes.decode, indent=1), replace)
    return names


def read_server_key(path: str) -> ServerKey:
    """Read the key file of a collector.

    Raises
    ------
    NotFoundError, FormatError
        The file does not exist, or is another kind of file.
    CollectorError
        Other users can read it.
    """
    values = _read(path, ("public", "secret", "clients"), "the file of shardkeep collect --new-key FILE")
    clients = frozenset(_key(one, path) for one in values["clients"])
    return ServerKey(_key(values["public"], path), _key(values["secret"], path), clients)


def read_client_key(path: str) -> ClientKey:
    """Read the key file of the clients; raises the errors of `read_server_key`."""
    values = _read(path, ("server", "public", "secret"), "FILE.client of shardkeep collect --new-key FILE")
    return ClientKey(*(_key(values[name], path) for name in ("server", "public", "secret")))


class ZapAuthenticator:
    """An authenticator that ZeroMQ asks, for each connection, whether its key is allowed (ZAP, RFC 27).

    Parameters
    ----------
    context : zmq.Context
        The context of the collector's socket.
    allowed : set of bytes
        The public keys of clients.
    refused : callable
        Called with the address and the reason of each refusal, for the log.
    """

    def __init__(
        self, context: zmq.Context[Any], allowed: frozenset[bytes], refused: Callable[[str, str], None]
    ) -> None:
        zmq = zmq_module()
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind("inproc://zeromq.zap.01")
        self._allowed = allowed
        self._refused = refused

    def answer(self) -> None:
        """Answer the requests that wait: many clients connect at once."""
        zmq = zmq_module()
        with contextlib.suppress(zmq.Again):
            for _ in range(_REQUESTS_PER_STEP):
                self._answer(self.socket.recv_multipart(zmq.NOBLOCK))

    def _answer(self, frames: list[bytes]) -> None:
        zmq = zmq_module()
        version, request, _, address, _, mechanism, *credentials = [*frames, *[b""] * 6][
            : max(len(frames), 6)
        ]
        key = credentials[0] if credentials else b""
        good = mechanism == b"CURVE" and len(key) == 32 and zmq.utils.z85.encode(key) in self._allowed
        if not good:
            self._refused(
                address.decode(errors="replace"), f"a key that is not allowed ({mechanism.decode()})"
            )
        code, text = (b"200", b"OK") if good else (b"400", b"not allowed")
        self.socket.send_multipart([version, request, code, text, b"client", b""])

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def _read(path: str, names: tuple[str, ...], made_by: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(1 << 20)
    except FileNotFoundError:
        raise NotFoundError(f"the key file {path!r} does not exist: pass {made_by}", path=path) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise CollectorError(
            f"the key in {path!r} cannot be read ({reason}): pass {made_by}", path=path
        ) from None
    try:
        values = json.loads(data)
        if not isinstance(values, dict) or not all(name in values for name in names):
            raise ValueError("it is the other half" if "secret" in values else "keys are missing")
        if not isinstance(values.get("clients", []), list):
            raise ValueError("clients must be a list")
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"{path!r} is not the key file that is needed ({error}): pass {made_by}", path=path
        ) from None
    if mode & 0o077:
        raise CollectorError(f"other users can read the key in {path!r}: chmod 600 it", path=path)
    return dict(values)


def _key(text: Any, path: str) -> bytes:
    if not isinstance(text, str) or len(text) != 40:
        raise FormatError(f"{path!r} holds a key that is not valid: make a new one", path=path)
    return text.encode()


def _in_use(path: str) -> ExistsError:
    message = f"{path!r} exists, and a key in use is not overwritten: choose another name, or remove it"
    return ExistsError(message, path=path)


def _write_private(path: str, text: str, replace: bool) -> None:
    content = f"{text}\n".encode()
    if replace:
        # A new file, not new content: the old one may be a link, or open in another process.
        with publish_sidecar(path, mode=0o600) as old:
            old.write(content)
        return
    with durably("write", path):
        try:
            fd = make_sidecar(path)
        except FileExistsError:
            raise _in_use(path) from None
        with open(fd, "wb") as new:
            os.fchmod(fd, 0o600)
            new.write(content)
