from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from shardkeep import adapters
from shardkeep._extras import EXTRAS, import_extra
from shardkeep.errors import MissingExtraError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source file of a `pyarrow` that is found before the installed one."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Remove after the test what it imports.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    del sys.modules["pyarrow"]
    folder = tmp_path / "pyarrow"
    folder.mkdir()
    return folder / "__init__.py"


def message(name: str = "pyarrow") -> str:
    with pytest.raises(MissingExtraError) as caught:
        import_extra(name, "read_arrow", "x.parquet")
    assert caught.value.path == "x.parquet"
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_package_has_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for name in ("pyarrow", "pyarrow.parquet"):
        assert message(name) == (
            "read_arrow needs pyarrow, which is not installed: pip install 'shardkeep[arrow]'"
        )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            "raise ImportError('it needs numpy>=2,\\n  found 1.26')",
            "it needs numpy>=2, found 1.26",
        ),
        ("raise AttributeError('_ARRAY_API not found')", "AttributeError: _ARRAY_API not found"),
        ("import no_such_module_of_pyarrow", "No module named 'no_such_module_of_pyarrow'"),
        ("raise OSError('libx.so: cannot open shared object file')", "libx.so: cannot open"),
    ],
    ids=["other_numpy", "attribute", "dependency", "library"],
)
def test_failed_import_shows_its_reason(package: Path, source: str, reason: str) -> None:
    package.write_text(source)
    text = message()
    assert reason in text and "is installed but cannot be imported" in text
    assert "not installed" not in text and "pip install --force-reinstall pyarrow" in text


def test_old_version_is_refused_with_both_versions(package: Path) -> None:
    package.write_text("__version__ = '13.0.0'")
    assert message() == (
        "read_arrow needs pyarrow 14 or later, not 13.0.0: pip install --upgrade 'shardkeep[arrow]'"
    )


@pytest.mark.parametrize("version", ["14", "14.0.0a0+git", "26.1", "built from source"])
def test_other_versions_are_used(package: Path, version: str) -> None:
    package.write_text(f"__version__ = {version!r}")
    assert import_extra("pyarrow", "read_arrow").__version__ == version


@pytest.mark.parametrize("name", adapters.__all__)
def test_an_adapter_names_the_command_that_installs_its_framework(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, framework = f"shardkeep.adapters.{name}", "datasets" if name == "huggingface" else name
    for module in [one for one in sys.modules if one == adapter or one.startswith(f"{adapter}.")]:
        monkeypatch.delitem(sys.modules, module)
    old = ModuleType(framework)
    old.__version__ = "0.1"  # type: ignore[attr-defined]
    for replaced, command in ((None, "pip install"), (old, "pip install --upgrade")):
        monkeypatch.setitem(sys.modules, framework, replaced)
        with pytest.raises(MissingExtraError) as caught:
            getattr(import_module(adapter), "to_dataset", None)
        assert str(caught.value).endswith(f": {command} 'shardkeep[{name}]'")


def test_packages_and_versions_are_those_of_the_project() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    declared = {
        (found.name, extra, str(found.specifier).removeprefix(">="))
        for extra, lines in project.items()
        if extra != "dev"
        for found in map(Requirement, lines)
    }
    assert set(map(tuple, EXTRAS.values())) == declared
