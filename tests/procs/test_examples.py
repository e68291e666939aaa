"""Each example runs as its first lines say, shows the wrong pattern failing and the right one working."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ["rewritten_in_place", "several_readers", "shared_handle"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_comes_out_as_documented(name, tmp_path):
    file = ROOT / "examples" / f"{name}.py"
    assert f"    python examples/{name}.py\n" in file.read_text()
    done = subprocess.run(
        [sys.executable, "-W", "error", file],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nas documented\n")
    assert done.stderr == ""
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_shows_what_it_prints(name, tmp_path):
    """The rows of the table in docs/locking.md are the rows of the program."""
    page = (ROOT / "docs/locking.md").read_text()
    source = (ROOT / "examples" / f"{name}.py").read_text()
    titles = re.findall(r'(?:experiment|show)\(\s*"([^"]+)"', source)
    assert len(titles) >= 4
    assert [title for title in titles if title not in page] == []
