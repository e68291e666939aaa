"""The command that serves the page, in a process.

Covers `shardkeep.viewer.host` and `shardkeep.viewer.serve`.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from shardkeep import PlanError
from shardkeep.viewer import serve
from tests.waiting import PATIENCE_S


@pytest.mark.parametrize("is_json", [False, True])
def test_it_prints_its_address_and_ends_with_ctrl_c(tmp_path: Path, is_json: bool) -> None:
    (tmp_path / "notes.txt").write_text("text")
    command = [sys.executable, "-m", "shardkeep", "view", str(tmp_path), *(["--json"] if is_json else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            address = json.loads(line)["address"] if is_json else line.strip()
            assert address.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                assert b"notes.txt" in answer.read()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, errors) == (130, "shardkeep: error: interrupted\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "token of at least 16 characters"),
        ({"host": "192.0.2.1", "token": "short"}, "token of at least 16 characters"),
        ({"host": "192.0.2.1", "token": "x" * 16}, "cannot listen on 192.0.2.1"),
        ({"token": "a/b"}, "letters, digits"),
    ],
)
def test_an_option_is_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        serve([str(tmp_path)], started=print, **options)


REQUESTS = {
    "GET {base}/0 HTTP/1.1\r\nHost: {host}": 200,
    "HEAD {base}/0 HTTP/1.1\r\nHost: {host}": 200,
    "GET {base}/0 HTTP/1.0": 421,
    "GET {base}/0 HTTP/1.1\r\nHost: rebound.example": 421,
    "GET http://{host}{base}/0 HTTP/1.1\r\nHost: rebound.example": 421,
    "GET {base}/0 HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: cross-site": 403,
    "GET {base}x/0 HTTP/1.1\r\nHost: {host}": 403,
    "GET /%2e%2e{base}/0 HTTP/1.1\r\nHost: {host}": 403,
    "GET {base}/0/../../../etc/passwd HTTP/1.1\r\nHost: {host}": 403,
    "GET {base}/static/../../0 HTTP/1.1\r\nHost: {host}": 404,
    "GET {base}/static/%2e%2e/serve.py HTTP/1.1\r\nHost: {host}": 404,
    "POST {base}/0 HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0": 405,
    "TRACE {base}/0 HTTP/1.1\r\nHost: {host}": 405,
    "GET {base}/0 HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade": 200,
}


def test_requests_of_an_attacker_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("text")
    command = [sys.executable, "-m", "shardkeep", "view", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = urllib.parse.urlsplit(process.stdout.readline().strip())
            found = {}
            for request in REQUESTS:
                text = request.format(base=address.path.rstrip("/"), host=address.netloc)
                with socket.create_connection((address.hostname, address.port), PATIENCE_S) as connection:
                    connection.sendall((text + "\r\nConnection: close\r\n\r\n").encode())
                    with connection.makefile("rb") as answer:
                        found[request] = int(answer.readline().split()[1])
        finally:
            process.kill()
    assert found == REQUESTS


def test_a_url_is_refused() -> None:
    with pytest.raises(PlanError, match="copy or mount it"):
        serve(["s3://bucket/data"], started=print)
