"""`CreditPool`: how many bytes each client may send, so that all of them fit into a fixed memory.

Every client has a limit: how many bytes it may have sent in all since it connected, as in QUIC
(RFC 9000, section 4.1). What is between its limit and what was taken from it is reserved. The
reservations of all clients together never exceed the pool.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["CreditPool"]

_SMALLEST_WINDOW = 16 * 1024
_LARGEST_WINDOW = 8 << 20


@dataclass
class _Account:
    taken: int = 0
    limit: int = 0
    window: int = _SMALLEST_WINDOW
    wanted: int = 0
    recalled: bool = False

    @property
    def reserved(self) -> int:
        return self.limit - self.taken


class CreditPool:
    """Credits of all clients.

    Parameters
    ----------
    size : int
        Bytes for all of them.

    Examples
    --------
    >>> pool = CreditPool(64 * 1024)
    >>> [pool.open(name) for name in "abcd"]
    [16384, 16384, 16384, 16384]
    >>> pool.open("e")  # nothing left: it has to wait
    0
    >>> pool.close("a")
    >>> pool.grant()
    ['e']
    >>> pool.limit("e")
    16384
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.reserved = 0
        self._withheld = 0
        self._accounts: dict[Hashable, _Account] = {}
        self._waiting: dict[Hashable, None] = {}  # in the order of their asking

    @property
    def largest(self) -> int:
        """The longest message that can ever be sent."""
        return self.size // 2

    def withhold(self, count: int) -> None:
        """Lend so many bytes less: what came takes them in another form, until a commit has written it."""
        self._withheld = count

    def open(self, client: Hashable) -> int:
        """Begin an account; return its limit."""
        self.close(client)
        account = self._accounts[client] = _Account()
        self._renew(account)
        if account.limit == 0:
            account.wanted = account.window
            self._waiting[client] = None
        return account.limit

    def close(self, client: Hashable) -> None:
        """End an account."""
        account = self._accounts.pop(client, None)
        self._waiting.pop(client, None)
        if account is not None:
            self.reserved -= account.reserved

    def limit(self, client: Hashable) -> int:
        """Return how many bytes a client may have sent in all."""
        return self._accounts[client].limit

    def is_news(self, client: Hashable, told: int) -> bool:
        """Whether a client that was told this limit has used half of its credit, and there is more."""
        account = self._accounts[client]
        return account.limit - told >= max(account.window // 2, 1)

    def take(self, client: Hashable, count: int) -> bool:
        """Note that so many bytes came and are done with; False if they are far beyond the client's credit.

        Credit that is called back may be on its way to be used.
        """
        account = self._accounts[client]
        allowed = account.taken + count <= account.limit + _LARGEST_WINDOW
        used = min(count, account.reserved)
        # All of it, also what came without credit: both sides have to count the same.
        account.taken += count
        account.limit = max(account.limit, account.taken)
        self.reserved -= used
        # While somebody waits, whoever has used its credit has to wait as well.
        if not account.recalled and not self._waiting:
            self._renew(account)
        return allowed

    def want(self, client: Hashable, count: int) -> None:
        """Note that a client waits to send so many bytes; until it may, it sends nothing."""
        account = self._accounts[client]
        # What is left of its credit is too little for it: others who wait can use it.
        self.reserved -= account.reserved
        account.limit = account.taken
        account.window = min(max(account.window * 2, count), max(_LARGEST_WINDOW, count))
        account.wanted = min(count, self.largest)
        account.recalled = False
        self._waiting.setdefault(client)

    def give_back(self, client: Hashable, sent: int) -> None:
        """Note that a client will not use its credit; `sent` is what it has sent in all."""
        account = self._accounts[client]
        kept = min(max(sent, account.taken), account.limit)
        self.reserved -= account.limit - kept
        account.limit = kept
        account.window = _SMALLEST_WINDOW

    def grant(self) -> list[Hashable]:
        """Give credit to those who wait, in the order of their asking; return who got some."""
        happy = []
        for client in list(self._waiting):
            account = self._accounts[client]
            free = self._free + account.reserved
            if account.wanted > free:
                break
            target = max(account.wanted, min(account.window, self._share))
            self._reserve(account, min(target, free))
            account.wanted = 0
            del self._waiting[client]
            happy.append(client)
        return happy

    def recall(self) -> list[Hashable]:
        """Return who has to give credit back because somebody waits; nobody is asked twice."""
        if not self._waiting:
            return []
        asked = []
        for client, account in self._accounts.items():
            if account.reserved and not account.wanted and not account.recalled:
                account.recalled = True
                asked.append(client)
        return asked

    @property
    def _free(self) -> int:
        return self.size - self._withheld - self.reserved

    @property
    def _share(self) -> int:
        return max(self.size // (2 * max(len(self._accounts), 1)), _SMALLEST_WINDOW)

    def _renew(self, account: _Account) -> None:
        free = self._free + account.reserved
        self._reserve(account, min(account.window, max(self._share, account.reserved), free))

    def _reserve(self, account: _Account, count: int) -> None:
        if count > account.reserved:
            self.reserved += count - account.reserved
            account.limit = account.taken + count
