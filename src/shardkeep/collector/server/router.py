"""The socket that a collector receives messages on."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from shardkeep.collector.protocol.address import check_address, remove_dead_socket
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.protocol.zeromq import HANDSHAKE_MS, zmq_module
from shardkeep.errors import CollectorError, PlanError
from shardkeep.files.sidecar import trusted_users

if TYPE_CHECKING:
    import zmq

    from shardkeep.collector.protocol.keys import ServerKey

__all__ = ["failed_handshake", "open_router", "wanted_address"]

_QUEUED_MESSAGES = 16


def wanted_address(settings: Settings) -> str | None:
    """Return the address to listen on; None for a socket in its own folder.

    Raises
    ------
    PlanError
        Not an address, or one that other users can reach, without a key.
    """
    if not settings.address:
        return None
    address = check_address(settings.address)
    if address.startswith("tcp://") and settings.key_file is None:
        message = f"{address!r} can be reached from the network, so it needs a key"
        raise PlanError(f"{message}: shardkeep collect --new-key FILE, then --key-file FILE")
    return address


def open_router(context: zmq.Context[Any], address: str, key: ServerKey | None, largest_bytes: int) -> Any:
    """Return a ROUTER socket that listens on an address.

    Parameters
    ----------
    context : zmq.Context
    address : str
        As `shardkeep.collector.protocol.address.check_address` allows.
    key : ServerKey or None
        Key for CURVE; without it, connections are not encrypted.
    largest_bytes : int
        A longer frame ends its connection.

    Raises
    ------
    CollectorError
        The address is in use, or not one of this host.
    """
    zmq = zmq_module()
    router = context.socket(zmq.ROUTER)
    router.linger = 1000
    router.maxmsgsize = largest_bytes
    # Messages of one client that ZeroMQ holds. Credit bounds those of an honest client; of one that sends
    # without credit, this many of the longest are in memory.
    router.rcvhwm, router.sndhwm = _QUEUED_MESSAGES, 1000
    # No heartbeat on this side: libzmq 4.3.5 aborts the process when one is due on the connection of a client
    # that died while more of its messages waited than `rcvhwm`. Silent clients are dropped by `Server`.
    router.tcp_keepalive, router.tcp_keepalive_idle = 1, 10
    router.tcp_keepalive_intvl, router.tcp_keepalive_cnt = 5, 3
    router.backlog = 1024
    if key is not None:
        router.curve_server, router.curve_secretkey, router.curve_publickey = True, key.secret, key.public
        router.handshake_ivl = HANDSHAKE_MS
    if address.startswith("tcp://["):
        router.ipv6 = True
    if address.startswith("ipc://"):
        remove_dead_socket(address)
        # Beyond the permissions of the socket, which a default ACL of the folder would extend: ZeroMQ gets
        # the user of each connection from the kernel (SO_PEERCRED) and closes that of another user.
        if hasattr(socket, "SO_PEERCRED"):
            for user in sorted(trusted_users()):
                router.setsockopt(zmq.IPC_FILTER_UID, user)
    before = os.umask(0o177)
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        router.close()
        message = f"cannot listen on {address!r} ({error}): choose another address"
        raise CollectorError(message) from None
    finally:
        os.umask(before)
    return router


def failed_handshake(monitor: Any) -> str:
    """Read one event of the monitor of a router; return the reason of the failure as text."""
    from zmq.utils.monitor import recv_monitor_message

    event = recv_monitor_message(monitor, zmq_module().NOBLOCK)
    return f"no handshake of ZeroMQ with this key ({event['event'].name})"
