"""What the documentation says is so."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from shardkeep._extras import EXTRAS
from shardkeep.cli.app import app
from tests.doc_pages import FENCE, Step, blocks_of, name_of, run_steps, steps_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
INLINE = re.compile(r"`(shardkeep [a-z][^`]*)`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", generator().PAGES)
def test_generated_page_is_fresh(name: str) -> None:
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert page == generator().PAGES[name](), "run `make docs`"


# The pages of the frameworks and the engines run where these are installed, in tests/frameworks.
RUN = [
    page
    for page in PAGES
    if page.parent.name != "frameworks" and page.name != "engines.md" and steps_of(page)
]


@pytest.mark.parametrize("page", RUN, ids=relative)
def test_page_works_as_a_reader_runs_it(page: Path, tmp_path: Path) -> None:
    """One folder and one session of Python, all blocks in their order."""
    run_steps(steps_of(page), tmp_path)


def test_readme_has_files_and_commands_that_run() -> None:
    assert {step.kind for step in steps_of(ROOT / "README.md")} == {"file", "console"}


@pytest.mark.slow
def test_readme_works_again_and_with_other_numbers_of_ranks(tmp_path: Path) -> None:
    steps = steps_of(ROOT / "README.md")
    runs = list(steps)
    for launcher in ("torchrun --nproc-per-node 3", "python", "torchrun --nproc-per-node 2"):
        for step in steps:
            shown = [re.sub(r"\d receipts?\)", "…)", line) for line in step.shown]
            text = re.sub(r"torchrun --nproc-per-node 2", launcher, step.text)
            runs.append(step._replace(text=text, shown=shown))
    removal = Step("console", "rm -rf run results.h5 train-*.tfrecord", "", [])
    run_steps([*runs, removal, *steps], tmp_path)


def test_every_block_says_its_language() -> None:
    known = {"python", "console", "text", "json", "toml", "rust"}
    assert [name_of(block) for block in BLOCKS if block.language not in known] == []
    assert {block.info for block in BLOCKS} <= {"", "sample"}


def commands_in_docs() -> list[tuple[str, str]]:
    found = []
    for block in BLOCKS:
        if block.language == "console":
            shown = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
            lines = [line.partition("  #")[0] for line in shown]
            assert lines, f"{name_of(block)}: a transcript shows its command behind '$ '"
            found += [(name_of(block), line) for line in lines]
    for page in PAGES:
        for match in INLINE.finditer(FENCE.sub("", page.read_text(encoding="utf-8"))):
            found.append((relative(page), match[1]))
    return found


@pytest.mark.parametrize(("where", "line"), commands_in_docs())
def test_command_exists(where: str, line: str) -> None:
    words = line.split()
    if words[0] == "shardkeep":
        names = [word for word in words[1:] if not word.startswith("-")]
        assert not names or names[0] in app.commands, where
        if names:
            known = {option for parameter in app.commands[names[0]].params for option in parameter.opts} | {
                "--help"
            }
            assert {word.partition("=")[0] for word in words[2:] if word.startswith("-")} <= known, where
    elif words[0] == "make":
        assert {word for word in words[1:] if "=" not in word} <= TARGETS, where
    else:
        assert words[0] in {
            "cargo",
            "cd",
            "cmp",
            "git",
            "mpirun",
            "pip",
            "printf",
            "python",
            "srun",
            "torchrun",
        }, where


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_resolve(page: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_install_page_has_every_extra() -> None:
    page = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    extras = {extra.extra for extra in EXTRAS.values()}
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == extras
    assert [e for e in EXTRAS.values() if f"{e.package} {e.minimum}" not in page] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


@pytest.mark.parametrize(
    ("index", "folder"),
    [
        ("docs/index.md", "docs"),
        ("docs/index.md", "docs/concepts"),
        ("docs/index.md", "docs/formats"),
        ("docs/index.md", "docs/start"),
        ("docs/index.md", "docs/how-to"),
        ("docs/index.md", "docs/frameworks"),
        ("docs/api/index.md", "docs/api"),
        ("docs/design/README.md", "docs/design"),
    ],
)
def test_index_leads_to_every_page(index: str, folder: str) -> None:
    linked = {(ROOT / index).parent.joinpath(t).resolve() for t in LINK.findall((ROOT / index).read_text())}
    pages = {page.resolve() for page in (ROOT / folder).glob("*.[mr][ds]*")} - {(ROOT / index).resolve()}
    assert pages <= linked


def variables_read(module: Path) -> Iterator[str]:
    """Yield the environment variables that a module reads."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    constants = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            mapping, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Subscript):
            mapping, key = node.value, node.slice
        elif isinstance(node, ast.Compare):
            mapping, key = node.comparators[0], node.left
        else:
            continue
        if ast.unparse(mapping).rpartition(".")[2] in ("env", "environ", "environment"):
            value = constants.get(key.id) if isinstance(key, ast.Name) else key
            if isinstance(value, ast.Constant):
                yield str(value.value)


def test_page_of_the_environment_has_every_variable_that_is_read_and_no_other() -> None:
    launchers = ROOT / "src/shardkeep/launchers.py"
    read = {name for module in (ROOT / "src").rglob("*.py") for name in variables_read(module)}
    # Launchers' variables are in tables; the other constants of that module are in its __all__.
    read |= set(re.findall(r'"([A-Z][A-Z0-9_]+)"', launchers.read_text().partition("REMEDY = ")[2]))
    for source in (ROOT / "crates").glob("*/src/**/*.rs"):
        read |= set(re.findall(r'"(SHARDKEEP_[A-Z_]+)"', source.read_text(encoding="utf-8")))
    rows = re.findall(r"^\| (.*) \|$", (ROOT / "docs/environment.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(_?[A-Z]+[0-9]*_?[A-Z_0-9]*|container)`", row)}
    values = {"TRUE", "FALSE", "BEST_EFFORT", "AWS_PROFILE"}
    assert named - values == read


def dependencies() -> list[str]:
    project = (ROOT / "pyproject.toml").read_text()
    named = re.findall(r'"([A-Za-z0-9-]+)(?:\[\w+\])?[<>=]=?[^"]*"', project.partition("[tool.maturin]")[0])
    python = [name for name in named if name not in ("shardkeep", "Development")]
    rust = []
    for cargo in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        for table in re.findall(
            r"^\[(?:dev-)?dependencies\]\n(.*?)(?=^\[|\Z)", cargo.read_text(), re.MULTILINE | re.DOTALL
        ):
            rust += re.findall(r"^([\w-]+) *=", table, re.MULTILINE)
    return sorted(name for name in {*python, *rust} if not name.startswith("shardkeep-"))


@pytest.mark.parametrize("name", dependencies())
def test_every_dependency_is_accounted_for(name: str) -> None:
    page = (ROOT / "docs/design/dependencies.md").read_text(encoding="utf-8")
    assert f"`{name}`" in page
