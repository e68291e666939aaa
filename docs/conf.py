"""Settings of Sphinx for the documentation site; `make docs` builds it.

The source folder is the root of the repository, so that the README and the change log are pages too, and a
link between pages is the same on the site and in the repository.
"""

from __future__ import annotations

import re

from sphinx.application import Sphinx

from shardkeep._version import __version__

project = "Shardkeep"
copyright = "the authors of Shardkeep"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
include_patterns = ["*.md", "docs/**.md", "docs/**.rst", "benchmarks/*.md"]
exclude_patterns = [".*", "crates", "examples", "src", "target", "tests"]
root_doc = "docs/index"

html_theme = "furo"
html_title = "Shardkeep"
html_extra_path = ["site"]

myst_heading_anchors = 4
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": True}
autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the docstrings have the types
autodoc_mock_imports = ["datasets", "grain", "jax", "keras", "ray", "tensorflow", "torch"]
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_inherit_docstrings = False
default_role = "code"
suppress_warnings = ["ref.python"]  # an ambiguous word among the types of a docstring

LINK = re.compile(r"^- \[[^\]]*\]\(([^)#\s]+)\.(?:md|rst)\)", re.MULTILINE)


def setup(app: Sphinx) -> None:
    """Make the lists of links of an index page its part of the navigation."""
    app.connect("source-read", _with_navigation)
    app.connect("autodoc-process-docstring", _without_rooms)


def _without_rooms(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    if what == "module":
        lines[:] = re.sub(r"(Other rooms import|Sub-rooms:)\s[^.]*\.", "", "\n".join(lines)).splitlines()


def _with_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    if name not in {root_doc, "docs/design/README", "docs/api/index"}:
        return
    parts = re.split(r"^## (.*)$", source[0], flags=re.MULTILINE)
    for caption, section in zip(["", *parts[1::2]], parts[::2], strict=True):
        pages = LINK.findall(section)
        if pages:
            options = f":hidden:\n:caption: {caption}\n" if caption else ":hidden:\n"
            source[0] += f"\n```{{toctree}}\n{options}\n" + "\n".join(pages) + "\n```\n"
