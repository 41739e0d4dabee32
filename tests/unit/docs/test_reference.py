"""The reference is what the code says, every verb is in it, and every guide's command exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.unit.docs.generators import ROOT, generator

from bathyscope import __version__, cli
from bathyscope.layers import traits
from bathyscope.spec.plan import Plan
from bathyscope.spec.plan_file import parse_plan


def test_the_reference_equals_the_code() -> None:
    assert generator("generate").differing_pages() == [], "run `make docs`"


PLAN_KEYS = list(generator("generate").plan_keys())


@pytest.mark.parametrize(("section", "key", "about"), PLAN_KEYS, ids=[f"{s}.{k}".lstrip(".") for s, k, _ in PLAN_KEYS])
def test_every_key_of_a_plan_is_explained_by_an_example_that_works(
    section: str, key: str, about: dict[str, Any]
) -> None:
    """The page says what the key means, in which unit, and shows a value that a plan file may have."""
    pages = generator("generate")
    assert about["description"]
    value = pages._value(about)
    assert value.get("unit") or value.get("type") != "number", "a number has a unit"
    document: dict[str, Any] = {"name": "x", "layers": ["rbd"], "patterns": ["randread-4K-qd1"]}
    if "$ref" in about:
        return
    example = pages.plan_example(about)
    assert example is not None, "a key without a default needs an example"
    if section == "axes" and key in ("op", "block_size", "queue_depth"):
        del document["patterns"]
        document["axes"] = {"op": "read", "block_size": "4K", "queue_depth": 1, key: example}
    elif section == "phases":
        document["phases"] = [{"name": "x", "cache": "1G", "empty": True, "warm": True, key: example}]
    elif section == "patterns":
        document["patterns"] = [{"op": "read", "block_size": "4K", "queue_depth": 1, key: example}]
    else:
        (document.setdefault(section, {}) if section else document)[key] = example
    text = "\n".join(f"{name}: {pages._yaml(one)}" for name, one in document.items())
    plan = parse_plan(text, name="the example", layers=traits())
    if not section:
        assert key in plan.model_fields_set


def test_the_example_of_the_plan_page_is_a_plan() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/reference/plan.md").read_text(), flags=re.DOTALL)
    assert parse_plan(text, name="the page", layers=traits()).name == "nightly"


def test_the_plan_page_has_every_key() -> None:
    documented = {(section, key) for section, key, _ in PLAN_KEYS}
    assert {("", key) for key in Plan.model_fields} <= documented
    for section in ("axes", "limits", "capture", "quiesce"):
        model = type(Plan.model_fields[section].default)
        assert {(section, key) for key in model.model_fields} <= documented


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


def _leaves(command: Any, name: str = "bathy") -> Iterator[tuple[str, Any]]:
    for word, part in getattr(command, "commands", {}).items():
        yield from _leaves(part, f"{name} {word}")
    if not hasattr(command, "commands"):
        yield name, command


def test_the_help_of_every_command_ends_with_examples_of_it() -> None:
    for name, command in _leaves(typer.main.get_command(cli.app)):
        text = (command.epilog or "").replace("bathy bench --", "bathy bench run --")
        # A line of its own, or within "Example: …", "$(…)" or "then: …".
        lines = re.findall(r"(?:^  |Examples?: |[;(] ?|then: )(bathy .*)", text, flags=re.MULTILINE)
        assert "xample" in (command.epilog or ""), name
        assert any(line.startswith(name) for line in lines), name
        for line in lines:
            one = re.split(r"\s{3,}|; bathy", line)[0]
            # Of "$(bathy …)" the closing quotation mark is left.
            test_every_command_of_the_guides_parses(name, one if one.count('"') % 2 == 0 else one.split(")")[0])


@pytest.mark.parametrize(("page", "line"), _documented_commands())
def test_every_command_of_the_guides_parses(page: str, line: str) -> None:
    """Each `bathy …` line of the README and the guides names real verbs and real options."""
    command: Any = typer.main.get_command(cli.app)
    words = shlex.split(line, comments=True)[1:]
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
        options |= {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    is_group = hasattr(command, "commands")
    assert not (is_group and words and not words[0].startswith("-")), f"{page}: no such verb in: {line}"
    for word in words:
        # What follows belongs to another program.
        own = command.context_settings.get("allow_interspersed_args", True) or word.startswith("-")
        if word == "--" or not own:
            break
        if word.startswith("--") and word != "--help":
            assert word.split("=")[0] in options, f"{page}: {word} is not an option in: {line}"


def test_the_architecture_is_short_enough_to_be_read() -> None:
    assert (ROOT / "ARCHITECTURE.md").stat().st_size <= 12 * 1024


def test_the_changelog_begins_with_this_version_in_a_few_lines_for_users() -> None:
    first = re.search(r"^## (\S+)\n(.*?)^#", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert first is not None
    assert first[1] == __version__
    assert 8 <= len(first[2].strip().splitlines()) <= 15
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text()


PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_named_files_exist(page: Path) -> None:
    """Links within the repository lead to a page and a heading, and a path in a sentence is that of a file."""
    text = page.read_text()
    for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#?)([^)]*)\)", text):
        found = page.parent / target if target else page
        assert found.exists(), target
        assert not anchor or anchor in _anchors(found), f"{target}#{anchor}"
    for path in re.findall(r"`((?:crates|docs|python|tests)/[\w/.-]+)`", text):
        assert (ROOT / path).exists(), path
    for module in re.findall(r"`((?:bench|run_kinds|layers|load|records|sources|views)/\w+\.py)`", text):
        assert (ROOT / "python/bathyscope" / module).exists(), module
