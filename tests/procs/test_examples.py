"""Each example runs as its first lines say, shows the wrong pattern failing and the right one working."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "collector": "docs/collector.md",
    "rewritten_in_place": "docs/locking.md",
    "several_readers": "docs/locking.md",
    "shared_handle": "docs/locking.md",
}


@pytest.mark.parametrize("name", PAGES)
def test_comes_out_as_documented(name, tmp_path):
    file = ROOT / "examples" / f"{name}.py"
    assert f"    python examples/{name}.py\n" in file.read_text()
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nas documented\n")
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_what_it_prints(name, tmp_path):
    """The rows of the table in the page are the rows of the program."""
    page = (ROOT / PAGES[name]).read_text()
    source = (ROOT / "examples" / f"{name}.py").read_text()
    titles = re.findall(r'(?:experiment|show)\(\s*"([^"]+)"', source)
    assert len(titles) >= 3
    assert [title for title in titles if title not in page] == []
