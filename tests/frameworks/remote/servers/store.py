"""Description of a running store, and the settings by which fsspec finds it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

__all__ = ["Store"]


class Store(NamedTuple):
    """A store that a test writes to.

    Attributes
    ----------
    root : str
        URL of an empty folder or bucket of this session.
    protocol : str
    options : dict
        Arguments of its fsspec file system, which the URL does not contain.
    variables : dict
        Variables of the environment, for clients that do not use fsspec.
    port : int
        Port of its server, for a proxy in front of it.
    """

    root: str
    protocol: str
    options: dict[str, Any]
    variables: dict[str, str]
    port: int

    def use(self, patch: pytest.MonkeyPatch) -> Store:
        """Configure fsspec in this process and in its children, and return the store."""
        import fsspec.config

        from shardkeep.files.remote import requests

        requests._systems.clear()  # they have the options of their first use
        patch.setitem(fsspec.config.conf, self.protocol, dict(self.options))
        patch.setenv(f"FSSPEC_{self.protocol.upper()}", json.dumps(self.options))
        for name, value in self.variables.items():
            patch.setenv(name, value)
        return self
