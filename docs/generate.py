"""Write docs/reference from the code: commands, plan, records, errors, JSON schemas of findings.

`--check` only compares. The reference is never edited by hand;
tests/unit/docs holds it equal to what this prints.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import bathyscope.sources  # noqa: F401 - a source may declare a record of its own
from bathyscope import cli, errors, records
from bathyscope.records import RECORDS_BY_TABLE
from bathyscope.records.blocks import Column, Table
from bathyscope.records.finding import COLUMN_FIELDS, FORMAT_VERSION
from bathyscope.spec.plan import Plan
from bathyscope.store.tables import stored_columns
from bathyscope.units import format_size_short

REFERENCE = Path(__file__).parent / "reference"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path. A group is what has `commands`: Typer brings its own click classes."""
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


_PLAN = """# Plan

A plan is a YAML file: `bathy bench run plan.yaml`. `bathy bench show ladder` prints a packaged one. Every key but those
of `patterns` can be set on the command line too: `--set runtime=3s`, `--set queue_depth=1,16` (an axis goes without its
section), `--set limits.prolong=0`.

Sizes may be written as 4K, 64M, 1.5G (powers of 1024), durations as 500ms, 10s, 2m. A key that does not exist is an
error.

```yaml
name: nightly
layers: [rados, rbd]
patterns: [randread-4K-qd16, randwrite-4K-qd16]
axes: {image_size: 1G}
repeats: 3
runtime: 10s
```
"""


def plan_keys() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield (section, key, JSON schema) of every key of a plan; the section of the top level is empty.

    A section is a key whose value, or each of its values, is a mapping with keys of its own.
    """
    schema = Plan.model_json_schema()
    for key, about in schema["properties"].items():
        yield "", key, about
    for section, about in schema["properties"].items():
        reference = about.get("$ref") or about.get("items", {}).get("$ref")
        if reference:
            for key, inner in schema["$defs"][reference.rpartition("/")[2]]["properties"].items():
                yield section, key, inner


def plan_example(about: dict[str, Any]) -> Any:
    """Return the example of a key: its own, or its default as people write it."""
    return about["examples"][0] if "examples" in about else _written(about.get("default"), _value(about))


def plan_page() -> str:
    """Return the page of all keys of a plan with unit, values, default and an example."""
    lines = _PLAN.splitlines()
    last = None
    for section, key, about in plan_keys():
        if section != last:
            last = section
            lines += ["", f"## {section or 'Top level'}", ""]
            lines += ["| key | meaning | unit | values | default | example |", "|---|---|---|---|---|---|"]
        value = _value(about)
        is_section = "$ref" in about
        default = "" if is_section else _yaml(_written(about.get("default"), value))
        example = "" if is_section else f"`{key}: {_yaml(plan_example(about))}`"
        cells = [f"`{key}`", _one_line(about.get("description")), value.get("unit", ""), _values(value)]
        lines.append("| " + " | ".join([*cells, f"`{default}`" if default else "", example]) + " |")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _value(about: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a single value: of a list its items', of an optional one that which is not null."""
    for inner in ("items", "additionalProperties"):
        if isinstance(about.get(inner), dict):
            return _value(about[inner])
    return next((_value(one) for one in about.get("anyOf", ()) if one.get("type") != "null"), about)


def _values(value: dict[str, Any]) -> str:
    """Return which values are valid."""
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if value.get("type") == "boolean":
        return "`true`, `false`"
    above, least = value.get("exclusiveMinimum", value.get("gt")), value.get("minimum", value.get("ge"))
    most = value.get("maximum")
    bounds = [f"> {above}"] if above is not None else [f"≥ {least}"] if least is not None else []
    return ", ".join([*bounds, *([f"≤ {most}"] if most is not None else [])])


def _written(value: Any, about: dict[str, Any]) -> Any:
    """Return a default as people write it; None when there is none."""
    if isinstance(value, list):
        return [_written(one, about) for one in value] or None
    if value in (None, "", {}):
        return None
    if about.get("unit") == "bytes":
        return format_size_short(value)
    return f"{value:g}s" if about.get("unit") == "seconds" else value


def _yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def records_page() -> str:
    """Return the page of all tables and columns, as `bathy schema` prints them."""
    lines = [
        "# Records",
        "",
        "The tables of a run, generated from their definitions. Units are in the column names.",
        "",
    ]
    for record in sorted(RECORDS_BY_TABLE.values(), key=lambda record: record.TABLE):
        lines += [f"## {record.TABLE}", "", inspect.cleandoc(record.__doc__ or ""), ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in stored_columns(record):
            kind = f"{column.type}, may be empty" if column.nullable else column.type
            lines.append(f"| `{column.column}` | {kind} | {column.unit} | {_one_line(column.help)} |")
        lines.append("")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def errors_page() -> str:
    """Return the page of error classes, as the module docstring draws them."""
    return f"# Errors\n\n{_indent_tree(errors.__doc__ or '')}\n"


def _indent_tree(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def findings() -> dict[str, type]:
    """Return every class of findings by its NAME: what `--output json` prints."""
    modules = [
        importlib.import_module(f"{records.__name__}.{entry.name}") for entry in pkgutil.iter_modules(records.__path__)
    ]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return dict(
        sorted((each.NAME, each) for each in classes if dataclasses.is_dataclass(each) and hasattr(each, "NAME"))
    )


def findings_schema() -> str:
    """Return the JSON schema of every finding, by the annotations of its class: what `as_plain` makes of it."""
    definitions: dict[str, Any] = {}
    printed: dict[str, Any] = {}
    for name, finding in findings().items():
        head = {"finding": {"const": finding.__name__}, "format_version": {"const": FORMAT_VERSION}}
        printed[name] = _object(finding, definitions, head)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `bathy … --output json` prints of a finding",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in printed],
        "$defs": printed | dict(sorted(definitions.items())),
    }
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _object(of: type, definitions: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a dataclass, with `head` before its own fields."""
    hints = typing.get_type_hints(of)
    names = {Table: ("key", "title", "columns", "rows"), Column: COLUMN_FIELDS}.get(of, tuple(hints))
    fields = [field.name for field in dataclasses.fields(of) if field.name in names]
    properties = head | {name: _json_type(hints[name], definitions) for name in fields}
    if of is Table:
        properties["rows"] = {"type": "array", "items": {"type": "object"}, "description": "by the keys of columns"}
    return {
        "description": inspect.cleandoc(of.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _json_type(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value. A number may be null: NaN and infinities are."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        name = typing.cast("type", hint).__name__
        if name not in definitions:
            definitions[name] = _object(typing.cast("type", hint), definitions, {})
        return {"$ref": f"#/$defs/{name}"}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_json_type(each, definitions) for each in inner]}
    if origin is tuple and inner[-1] is not Ellipsis:
        items = [_json_type(each, definitions) for each in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is tuple:
        return {"type": "array", "items": _json_type(inner[0], definitions)}
    plain = {str: "string", bool: "boolean", int: "integer", float: ["number", "null"], types.NoneType: "null"}
    return {} if hint is Any else {"type": plain[hint]}


PAGES = {
    "commands.md": commands_page, "plan.md": plan_page, "records.md": records_page, "errors.md": errors_page,
    "findings.json": findings_schema,
}  # fmt: skip


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
