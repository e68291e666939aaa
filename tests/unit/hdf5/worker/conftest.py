import pytest


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"
