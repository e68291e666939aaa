"""Credit: the bytes that each client may send, so that all messages under way fit into a fixed memory.

Each client has a limit: the bytes that it may have sent in all since it connected, as in QUIC (RFC 9000,
section 4.1). The bytes between its limit and those received from it are reserved for it. **Invariant:** a
reservation only grows within what is free of the pool, so all of them together never exceed its size.

Credit is granted in three places: `CreditPool.open` grants a first window, `CreditPool.receive` renews used
credit while no client waits, and `CreditPool.grant` serves waiting clients in the order of their requests.
While a client waits, used credit is not renewed, unused credit is recalled, and a client that requests more
returns its rest. Without these three rules, some clients would wait for ever.

Windows shrink with the number of clients, so that a client seldom waits: a renewed window is at most an equal
share of half of the pool, and a first one half of that. All first windows fit for 20 times the clients
that get 16 KiB, which are 1,024 of 64 MiB. No call takes longer with more clients, apart from those that it
returns.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["CreditPool"]

_SMALLEST_WINDOW = 16 * 1024
_LARGEST_WINDOW = 8 << 20


@dataclass
class _Account:
    received: int = 0
    limit: int = 0
    window: int = _SMALLEST_WINDOW
    requested: int = 0
    is_recalled: bool = False

    @property
    def reserved(self) -> int:
        return self.limit - self.received


class CreditPool:
    """The credit of all clients.

    Parameters
    ----------
    size : int
        Bytes for all clients.

    Attributes
    ----------
    reserved : int
        Bytes that clients may send now.

    Examples
    --------
    >>> pool = CreditPool(128 * 1024)
    >>> [pool.open(name) for name in "abcd"]
    [16384, 16384, 10922, 8192]
    >>> for name in "ab":
    ...     pool.request(name, 60_000)
    >>> pool.grant()  # b has to wait
    ['a']
    >>> pool.recall()
    ['a', 'c', 'd']
    >>> pool.give_back("c", 0)
    >>> pool.grant()
    ['b']
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reserved = 0
        self._withheld = 0
        self._accounts: dict[Hashable, _Account] = {}
        self._waiting: dict[Hashable, None] = {}  # in the order of their requests
        # Those that were granted credit since the last recall: only they can have some to give back.
        self._granted: dict[Hashable, None] = {}

    @property
    def largest(self) -> int:
        """Bytes of the longest message that may be sent."""
        return self.size // 2

    def withhold(self, count: int) -> None:
        """Grant `count` bytes less: received rows use that memory until they are in the file."""
        self._withheld = count

    def open(self, client: Hashable) -> int:
        """Open an account; return its limit."""
        self.close(client)
        account = self._accounts[client] = _Account()
        first = max(min(account.window, self._share // 2), 1)
        self._reserve(client, account, min(first, self._free))
        if account.limit == 0:
            account.requested = first
            self._waiting[client] = None
        return account.limit

    def close(self, client: Hashable) -> None:
        """Close an account."""
        account = self._accounts.pop(client, None)
        self._waiting.pop(client, None)
        self._granted.pop(client, None)
        if account is not None:
            self.reserved -= account.reserved

    def limit(self, client: Hashable) -> int:
        """Return the bytes that a client may have sent in all."""
        return self._accounts[client].limit

    def is_limit_due(self, client: Hashable, sent_limit: int) -> bool:
        """Return whether a client that knows `sent_limit` has used half of its credit, and has more now."""
        account = self._accounts[client]
        return account.limit - sent_limit >= max(min(account.window, self._share) // 2, 1)

    def receive(self, client: Hashable, count: int) -> bool:
        """Count bytes as received and processed; return False if they are far beyond the client's credit.

        Credit that is recalled may still be used by messages under way.
        """
        account = self._accounts[client]
        is_allowed = account.received + count <= account.limit + _LARGEST_WINDOW
        used = min(count, account.reserved)
        # Bytes without credit too: both sides have to count the same.
        account.received += count
        account.limit = max(account.limit, account.received)
        self.reserved -= used
        if not account.is_recalled and not self._waiting:
            free = self._free + account.reserved
            self._reserve(client, account, min(account.window, max(self._share, account.reserved), free))
        return is_allowed

    def request(self, client: Hashable, count: int) -> None:
        """Record that a client waits to send `count` bytes; it sends nothing until then."""
        account = self._accounts[client]
        # The rest of its credit is too small for it, and free for other clients.
        self.reserved -= account.reserved
        account.limit = account.received
        account.window = min(max(account.window * 2, count), max(_LARGEST_WINDOW, count))
        account.requested = min(count, self.largest)
        account.is_recalled = False
        self._waiting.setdefault(client)

    def give_back(self, client: Hashable, sent: int) -> None:
        """Free the credit that a client will not use; `sent` is the number of bytes it has sent in all."""
        account = self._accounts[client]
        kept = min(max(sent, account.received), account.limit)
        self.reserved -= account.limit - kept
        account.limit = kept
        account.window = _SMALLEST_WINDOW

    def grant(self) -> list[Hashable]:
        """Grant credit to the waiting clients, in the order of their requests; return those that got some."""
        granted = []
        for client in self._waiting:
            account = self._accounts[client]
            free = self._free + account.reserved
            if account.requested > free:
                break
            target = max(account.requested, min(account.window, self._share))
            self._reserve(client, account, min(target, free))
            account.requested = 0
            granted.append(client)
        for client in granted:
            del self._waiting[client]
        return granted

    def recall(self) -> list[Hashable]:
        """Return the clients that have to give credit back because another one waits, each client once."""
        if not self._waiting:
            return []
        recalled = [client for client in self._granted if self._accounts[client].reserved]
        for client in recalled:
            self._accounts[client].is_recalled = True
        self._granted = {}
        return recalled

    @property
    def _free(self) -> int:
        return self.size - self._withheld - self.reserved

    @property
    def _share(self) -> int:
        return self.size // (2 * max(len(self._accounts), 1))

    def _reserve(self, client: Hashable, account: _Account, count: int) -> None:
        if count > account.reserved:
            self.reserved += count - account.reserved
            account.limit = account.received + count
            self._granted[client] = None
