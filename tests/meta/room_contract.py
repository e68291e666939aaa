"""An import-linter contract: a room imports only what the docstring of another room offers.

A room is a package. The docstring of its ``__init__.py`` has a sentence "Other rooms import `a` and `b`.",
which names modules, or "Other rooms import any module."; without it only public names are offered.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output

_SOURCE = Path(__file__).resolve().parents[2] / "src"
_SENTENCE = re.compile(r"Other rooms import ([^.]+)\.")


class RoomContract(Contract):
    """Each import of a module of another room is one that this room offers."""

    type_name = "rooms"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Find the imports of modules that are not offered."""
        own = {module for module in graph.modules if not graph.is_module_squashed(module)}
        rooms = {module for module in own if graph.find_children(module)}
        offers = {room: _offers(room) for room in rooms}
        wrong = sorted(
            f"{importer} imports {module}"
            for module in own - rooms
            for importer in graph.find_modules_that_directly_import(module)
            if _room(importer, rooms) != (room := _room(module, rooms))
            and room in rooms
            and not {"any module", module.rpartition(".")[2]} & offers[room]
        )
        unknown = sorted(
            f"{room} offers {name}, which does not exist"
            for room in rooms
            for name in offers[room] - {"any module"}
            if f"{room}.{name}" not in graph.modules
        )
        return ContractCheck(kept=not wrong and not unknown, metadata={"findings": wrong + unknown})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the findings."""
        for finding in check.metadata["findings"]:
            output.print_error(finding)


def _room(module: str, rooms: set[str]) -> str:
    return module if module in rooms else module.rpartition(".")[0]


def _offers(room: str) -> set[str]:
    text = (_SOURCE / room.replace(".", "/") / "__init__.py").read_text()
    found = _SENTENCE.search((ast.get_docstring(ast.parse(text)) or "").replace("\n", " "))
    if found is None:
        return set()
    return {"any module"} if found[1] == "any module" else set(re.findall(r"`(\w+)`", found[1]))
