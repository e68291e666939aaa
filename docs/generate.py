"""Write the pages of docs/ that are made from the code: commands, errors, design notes, the manual page.

`make docs` runs it; tests/meta/test_docs.py fails while a page is not what this would write.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click

from shardkeep import errors
from shardkeep.cli import ExitCode
from shardkeep.cli.app import app
from shardkeep.diagnosis.explanation.knowledge import Entry, Explanation, entries

HERE = Path(__file__).resolve().parent
MADE = "<!-- Made from the code by `make docs`; edit the code, not this page. -->\n"


def commands_page() -> str:
    """Return docs/commands.md."""
    parts = ["# Commands\n", MADE, f"{_prose(app.help)}\n"]
    parts += [_options(app, common=True), "Every command has `--help` and `--debug` as well.\n"]
    for name, command in sorted(app.commands.items()):
        usage = " ".join(["shardkeep", name, *command.collect_usage_pieces(click.Context(command))])
        parts += [f"## shardkeep {name}\n", f"```text\n{usage}\n```\n", f"{_prose(command.help)}\n"]
        parts += [_options(command), "```text\n" + "\n".join(command.examples) + "\n```\n"]
    parts += ["## Completion in a shell\n", COMPLETION]
    parts += ["## Exit codes\n", _exit_codes(), "The errors behind them: [errors](errors.md).\n"]
    return "\n".join(parts)


def errors_page() -> str:
    """Return docs/errors.md."""
    assert errors.__doc__ is not None
    _title, _colons, tree, advice, _rest = errors.__doc__.split("\n\n")
    parts = [
        "# Errors\n",
        MADE,
        "Every error that Shardkeep raises on purpose is one of these. In parentheses is the built-in class"
        " that it also is, so `except FileNotFoundError` works.\n",
        f"```text\n{inspect.cleandoc(tree)}\n```\n",
        f"{_backticks(advice)}\n",
        "All of them have the attributes `path`, `offset_bytes` and `record` (None where they do not apply)"
        " and cross process pools with them.\n",
        "| error | what it means | exit code |",
        "|---|---|---|",
    ]
    for cls in _in_tree_order(errors.ShardkeepError):
        code = ExitCode(cls.exit_code)
        parts.append(f"| `{cls.__name__}` | {_first_paragraph(cls)} | {code.value} |")
    parts += ["", "The exit codes are listed with the [commands](commands.md#exit-codes).\n"]
    return "\n".join(parts)


def known_errors_page() -> str:
    """Return docs/errors-known.md."""
    parts = [
        "# Known errors\n",
        MADE,
        f"The {len(entries())} entries that `shardkeep explain` searches, with the texts of a log that they"
        " match (… stands for any text within the line). Some entries also need a certain traceback around"
        " the line, or have several causes; [explain](explain.md) reports the one that fits, with a command"
        " that proves it.\n",
    ]
    area = ""
    for entry in entries():
        if not entry.name.startswith(f"{area}/"):
            area = entry.name.partition("/")[0]
            parts.append(f"## {AREAS[area]}\n")
        parts += [f"### {_escaped(entry.explanation.title)}\n", f"`{entry.name}`: {_texts(entry)}\n"]
        # A variant often has another fix for the same cause, or the other way round.
        texts = dict.fromkeys(map(_explained, [entry.explanation, *(text for _, text in entry.variants)]))
        parts += [f"{text}\n" for text in texts]
    return "\n".join(parts)


def design_page() -> str:
    """Return docs/design/README.md."""
    notes = sorted(path for path in (HERE / "design").glob("*.md") if path.name != "README.md")
    parts = [
        "# Design notes\n",
        MADE,
        "Decisions with their reasons and final figures, one page per subject.\n",
        *(f"- [{_title(note)}]({note.name})" for note in notes),
        "\nThe directions of imports, from top to bottom; `make lint` enforces them:\n",
        f"```text\n{LAYERS}\n```\n",
        "Four crates in Rust do the work that must be fast or must survive hostile bytes: "
        "`shardkeep-core` (framing, checksums, Examples, columns, the batch engine, copies of chunks), "
        "`shardkeep-image` (PNG, JPEG, WebP, resizing), `shardkeep-hdf5` (a reader of HDF5 "
        "metadata, for merge, open and verify) and `shardkeep-py` (the binding). Plans, "
        "policy, writing HDF5, the collector, messages and commands are Python.\n",
    ]
    return "\n".join(parts)


def manual() -> str:
    """Return the manual page shardkeep(1), in the macros of man(7)."""
    parts = [".TH SHARDKEEP 1", ".SH NAME", "shardkeep \\- keep the files of distributed training whole"]
    parts += [
        ".SH SYNOPSIS",
        ".B shardkeep",
        r"\fICOMMAND\fR [\fIOPTIONS\fR]",
        ".SH DESCRIPTION",
        _roff(_prose(app.help)),
    ]
    parts += _roff_options(app, common=True)
    for name, command in sorted(app.commands.items()):
        usage = " ".join(["shardkeep", name, *command.collect_usage_pieces(click.Context(command))])
        parts += [f".SH {name.upper()}", f".B {_roff(usage)}", ".PP", _roff(_prose(command.help))]
        parts += [*_roff_options(command), ".PP", "Examples:"]
        parts += [line for example in command.examples for line in (".br", _roff(example))]
    parts.append(".SH EXIT STATUS")
    parts += [line for code in ExitCode for line in (".TP", f".B {code.value}", _roff(code.meaning))]
    return "\n".join(parts) + "\n"


def _roff(text: str) -> str:
    r"""Return text with the backslashes and hyphens of roff(7) escaped; an empty line begins a paragraph."""
    lines = text.replace("\\", r"\e").replace("-", r"\-").replace("\n\n", "\n.PP\n").split("\n")
    return "\n".join(
        rf"\&{line}" if line.startswith(("'", ".")) and line != ".PP" else line for line in lines
    )


def _roff_options(command: click.Command, *, common: bool = False) -> list[str]:
    options = [
        one for one in command.params if isinstance(one, click.Option) and (common or one.name != "debug")
    ]
    texts = ((_names(one).replace(r"\|", "|"), _meaning(one)) for one in options)
    return [line for name, meaning in texts for line in (".TP", f".B {_roff(name)}", _roff(meaning))]


COMPLETION = """\
Commands, options, their values, files, and datasets (after `shardkeep cat run.h5 --dataset`)
are completed after this line in the file that the shell reads at its start:

| shell | file | line |
|---|---|---|
| bash 4.4 or newer | `~/.bashrc` | `eval "$(_SHARDKEEP_COMPLETE=bash_source shardkeep)"` |
| zsh, after `compinit` | `~/.zshrc` | `eval "$(_SHARDKEEP_COMPLETE=zsh_source shardkeep)"` |
| fish | `~/.config/fish/config.fish` | `_SHARDKEEP_COMPLETE=fish_source shardkeep \\| source` |
"""
LAYERS = "cli → demo → jobs → loader, collector → hdf5 → tfrecord → plan, files, world → _core, errors"
AREAS = {
    "checkpoints": "Checkpoints and other data files",
    "frameworks": "Ray, Dask, Grain, JAX and NumPy",
    "hdf5": "HDF5",
    "processes": "Processes",
    "remote": "Object stores and HDFS",
    "system": "File systems and limits",
    "tensorflow": "TensorFlow",
    "tfrecord": "TFRecord",
    "torch": "PyTorch",
}
PAGES = {
    "commands.md": commands_page,
    "errors.md": errors_page,
    "errors-known.md": known_errors_page,
    "design/README.md": design_page,
    "man/data/share/man/man1/shardkeep.1": manual,
}


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _prose(text: str | None) -> str:
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _backticks(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _first_paragraph(cls: type[errors.ShardkeepError]) -> str:
    return _backticks(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0])


def _texts(entry: Entry) -> str:
    texts = ["…".join(pieces) for pieces in entry.match]
    return ", ".join(f"`` {text} ``" if "`" in text else f"`{text.strip()}`" for text in texts)


def _explained(text: Explanation) -> str:
    return f"Cause ({text.certainty}): {_escaped(text.cause)} Fix: {_escaped(text.fix)}"


def _escaped(text: str) -> str:
    """Return a text with its signs of Markdown escaped, except those in commands between backticks."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"(__|[*<\[])", r"\\\1", part) if at % 2 == 0 else part for at, part in enumerate(parts)
    )


def _in_tree_order(cls: type[errors.ShardkeepError]) -> list[type[errors.ShardkeepError]]:
    # Not the class that pyo3 makes for panics.
    children = [child for child in cls.__subclasses__() if child.__module__ == errors.__name__]
    return [cls] + [below for child in children for below in _in_tree_order(child)]


def _options(command: click.Command, *, common: bool = False) -> str:
    """Return the table of a command's options, not by click, whose format differs between versions."""
    lines = ["| option | meaning |", "|---|---|"]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (common or parameter.name != "debug"):
            lines.append(f"| `{_names(parameter)}` | {_cell(_meaning(parameter))} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _names(option: click.Option) -> str:
    names = ", ".join(sorted(option.opts, key=len))
    if option.is_flag:
        return names
    if isinstance(option.type, click.Choice):
        return _cell(f"{names} {'|'.join(map(str, option.type.choices))}")
    return f"{names} {(option.name or '').upper()}"


def _meaning(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    return f"{option.help}{default}"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _exit_codes() -> str:
    lines = ["| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {code.meaning} |" for code in ExitCode]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages that changed."""
    for name, make in PAGES.items():
        page, path = make(), HERE / name
        if not path.exists() or path.read_text(encoding="utf-8") != page:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
            print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
