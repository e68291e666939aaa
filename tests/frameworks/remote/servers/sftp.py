"""SFTP: OpenSSH's sshd for the user of the tests, with keys that are made for the session."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.frameworks.remote.servers.process import free_ports, listens, program, serve
from tests.frameworks.remote.servers.store import Store

__all__ = ["Sshd", "sftp_store", "sshd"]


class Sshd(NamedTuple):
    """A running server: its port, the private key of the client, and the folder that the tests write to."""

    port: int
    key: Path
    data: Path
    user: str


@contextlib.contextmanager
def sshd(folder: Path) -> Iterator[Sshd]:
    """Serve this machine's files by SFTP."""
    binary, keygen = program("sshd", "openssh-server"), program("ssh-keygen", "openssh-client")
    (port,) = free_ports(1)
    host_key, user_key = folder / "host_key", folder / "user_key"
    for key in (host_key, user_key):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    allowed = folder / "authorized_keys"
    allowed.write_bytes((folder / "user_key.pub").read_bytes())
    config = folder / "sshd_config"
    config.write_text(
        f"""
        ListenAddress 127.0.0.1:{port}
        HostKey {host_key}
        AuthorizedKeysFile {allowed}
        PidFile {folder / "pid"}
        PasswordAuthentication no
        PermitRootLogin prohibit-password
        StrictModes no
        UsePAM no
        MaxStartups 200
        MaxSessions 100
        Subsystem sftp internal-sftp
        """
    )
    if os.geteuid() == 0:  # the folder of its unprivileged part, which Debian makes when the service starts
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    data = folder / "data"
    data.mkdir()
    command = [binary, "-D", "-e", "-f", str(config)]
    with serve(command, ready=lambda: listens(port), log=folder / "log"):
        yield Sshd(port, user_key, data, getpass.getuser())


def sftp_store(server: Sshd) -> Store:
    """Return the description of the server as a store."""
    options = {"client_keys": [str(server.key)], "username": server.user}
    return Store(f"sftp://127.0.0.1:{server.port}{server.data}", "sftp", options, {}, server.port)
