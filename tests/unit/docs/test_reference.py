"""The reference is what the code says, every verb is in it, and every guide's command exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from bathyscope import cli

ROOT = Path(__file__).parents[3]


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_equals_the_code() -> None:
    assert _generator().differing_pages() == [], "run `make docs`"


def _documented_commands() -> list[tuple[str, str]]:
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if page.parent.name == "reference":
            continue
        for block in re.findall(r"```(?:console|sh|bash)?\n(.*?)```", page.read_text(), flags=re.DOTALL):
            joined = block.replace("\\\n", " ")
            found += [
                (page.name, line.removeprefix("$ ").strip())
                for line in joined.splitlines()
                if line.removeprefix("$ ").startswith("bathy ")
            ]
    return found


@pytest.mark.parametrize(("page", "line"), _documented_commands())
def test_every_command_of_the_guides_parses(page: str, line: str) -> None:
    """Each `bathy …` line of the README and the guides names real verbs and real options."""
    if not cli.app.registered_commands and not cli.app.registered_groups:
        cli.register_verbs()
    command: Any = typer.main.get_command(cli.app)
    words = shlex.split(line, comments=True)[1:]
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
        options |= {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    is_group = hasattr(command, "commands")
    assert not (is_group and words and not words[0].startswith("-")), f"{page}: no such verb in: {line}"
    for word in words:
        if word == "--":
            break
        if word.startswith("--") and word != "--help":
            assert word.split("=")[0] in options, f"{page}: {word} is not an option in: {line}"
