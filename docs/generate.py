"""Write docs/reference from the code: commands, records, errors, presets. `--check` only compares.

The reference is never edited by hand; tests/unit/docs holds it equal to what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from bathyscope import cli, errors
from bathyscope.records import ALL_RECORDS, help_of

REFERENCE = Path(__file__).parent / "reference"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path. Typer brings its own click, so commands are told by what they have."""
    yield path, command
    children = getattr(command, "commands", {})
    for name in sorted(children):
        if not children[name].hidden:
            yield from _commands(children[name], (*path, name))


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _markdown(text: str | None) -> list[str]:
    """Return help text as Markdown lines: what follows a \\b line is kept as it is, in a block of its own."""
    lines: list[str] = []
    kept = False
    for line in [*(text or "").strip().splitlines(), ""]:
        if line.strip() == "\b":
            lines.append("```console")
            kept = True
        elif kept and not line.strip():
            lines += ["```", ""]
            kept = False
        else:
            lines.append(line.strip() if not kept else line)
    return lines


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or callable(value) or value == () or not str(value) or repr(value) == "<UNSET>":
        return ""
    return f"`{getattr(value, 'value', value)}`"


def commands_page() -> str:
    """Return the page of all verbs, their options and examples, as their --help says it."""
    if not cli.app.registered_commands and not cli.app.registered_groups:
        cli.register_verbs()
    root = typer.main.get_command(cli.app)
    lines = ["# Commands", "", "Generated from the program; `bathy VERB --help` prints the same.", ""]
    for path, command in _commands(root, ("bathy",)):
        lines += [f"## {' '.join(path)}", "", *_markdown(command.help)]
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
        if arguments or options:
            lines += ["| option | meaning | default |", "|---|---|---|"]
        for argument in arguments:
            lines.append(
                f"| `{argument.metavar or argument.name.upper()}` | {_one_line(getattr(argument, 'help', ''))} | |"
            )
        for option in options:
            names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            lines.append(f"| {names} | {_one_line(option.help)} | {_default(option)} |")
        if command.epilog:
            lines += ["", *_markdown(command.epilog)]
        lines.append("")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def records_page() -> str:
    """Return the page of all tables and columns, as `bathy schema` prints them."""
    lines = [
        "# Records",
        "",
        "The tables of a run, generated from their definitions. Units are in the column names.",
        "",
    ]
    for record in ALL_RECORDS:
        lines += [f"## {record.TABLE}", "", (record.__doc__ or "").strip(), ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in help_of(record):
            kind = f"{column.type}, may be empty" if column.nullable else column.type
            lines.append(f"| `{column.column}` | {kind} | {column.unit} | {_one_line(column.help)} |")
        lines.append("")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def errors_page() -> str:
    """Return the page of error classes, as the module docstring draws them."""
    return f"# Errors\n\n{_indent_tree(errors.__doc__ or '')}\n"


def _indent_tree(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


PAGES = {"commands.md": commands_page, "records.md": records_page, "errors.md": errors_page}


def differing_pages() -> list[str]:
    """Return the names of the pages on disk that differ from what the code says."""
    return [
        name
        for name, page in PAGES.items()
        if not (REFERENCE / name).exists() or (REFERENCE / name).read_text() != page()
    ]


def main() -> int:
    """Write the pages, or with --check say which differ (exit code 1)."""
    if "--check" in sys.argv[1:]:
        for name in (differing := differing_pages()):
            print(f"docs/reference/{name} differs from the code; run `make docs`", file=sys.stderr)
        return 1 if differing else 0
    REFERENCE.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
