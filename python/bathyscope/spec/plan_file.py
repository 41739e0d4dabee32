"""Reads plans: YAML files, packaged presets and `--set` overrides, with errors that point at the line.

An invalid plan is reported as file, line, key and the nearest valid name, because the reader of the message
has the file open and wants to know where to put the cursor.
"""

from __future__ import annotations

import importlib.resources
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pydantic
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from bathyscope import files
from bathyscope.errors import PlanError, UsageError
from bathyscope.spec.layer import LayerTraits
from bathyscope.spec.plan import UNKNOWN_NAME, Axes, Capture, Limits, Phase, Plan, PlanPattern, Quiesce, read_pattern
from bathyscope.spec.values import did_you_mean

_PRESETS = "bathyscope.spec.presets"
_SECTIONS: dict[str, type[pydantic.BaseModel]] = {
    "axes": Axes,
    "limits": Limits,
    "capture": Capture,
    "quiesce": Quiesce,
    "patterns": PlanPattern,
    "phases": Phase,
}
_PATTERN_AXES = ("op", "block_size", "queue_depth")


def preset_names() -> list[str]:
    """Return the names of the packaged presets."""
    folder = importlib.resources.files(_PRESETS)
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """Return the YAML text of a preset. Raises UsageError with the nearest name."""
    names = preset_names()
    if name not in names:
        hint = did_you_mean(name, names, f"the presets are: {', '.join(names)}")
        raise UsageError(f"there is no preset '{name}'", hint=hint)
    return (importlib.resources.files(_PRESETS) / f"{name}.yaml").read_text()


def read_plan_text(path: Path) -> str:
    """Return the text of a plan file. Raises UsageError when it cannot be read."""
    try:
        return files.read_bounded(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file", hint="a plan is a YAML file; see bathy bench list") from error
    except OSError as error:
        raise UsageError(
            f"the plan {path} cannot be read: {error.strerror}",
            hint="name a YAML file, or take a preset: bathy bench list",
        ) from error


def parse_plan(text: str, *, name: str, layers: Mapping[str, LayerTraits], overrides: Sequence[str] = ()) -> Plan:
    """Return the plan that YAML `text` describes, with `overrides` (`key=value`) applied.

    `name` stands for the file in messages; `layers` are the traits of the layers that exist. Raises PlanError with
    line, key and the nearest valid name.
    """
    document = _load(text, name)
    changed = [_apply_override(document, override) for override in overrides]
    try:
        return Plan.model_validate(_plain(document), context={"layers": layers})
    except pydantic.ValidationError as error:
        raise _explain(error, document, name, dict(zip(overrides, changed, strict=True))) from error


def dump_plan(plan: Plan) -> str:
    """Return a plan as YAML text that `parse_plan` reads back to an equal plan."""
    yaml = YAML()
    yaml.default_flow_style = False
    out = io.StringIO()
    yaml.dump(_unset_removed(plan.model_dump(mode="json")), out)
    return out.getvalue()


def _unset_removed(value: Any) -> Any:
    """Leave out what is empty or None: its absence means the same."""
    if isinstance(value, dict):
        cleaned = {key: _unset_removed(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in (None, [], {})}
    return value


def _load(text: str, name: str) -> CommentedMap:
    yaml = YAML(typ="rt")
    try:
        document = yaml.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        where = f", line {line}" if line else ""
        raise PlanError(
            f"{name}{where}: not valid YAML: {error.problem or error.context}",
            hint="see an example: bathy bench show ladder",
            line=line,
        ) from error
    except (YAMLError, ValueError, RecursionError) as error:
        raise PlanError(f"{name}: not valid YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(document, CommentedMap):
        raise PlanError(f"{name}: a plan is a mapping of keys to values", hint="see: bathy bench show ladder", line=1)
    return document


def _plain(value: Any) -> Any:
    """Return a ruamel document as plain dictionaries and lists."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _valid_override_keys() -> list[str]:
    top = [key for key in Plan.model_fields if key not in _SECTIONS]
    dotted = [
        f"{section}.{key}" for section in ("limits", "capture", "quiesce") for key in _SECTIONS[section].model_fields
    ]
    return [*Axes.model_fields, *top, *dotted]


def _apply_override(document: CommentedMap, override: str) -> tuple[str, ...]:
    """Apply one `key=value`: an axis, a top-level key, or section.key. Values are YAML; commas make a list.

    Returns the path of what it replaced in the document.
    """
    key, equals, text = override.partition("=")
    key = key.strip().replace("-", "_").removeprefix("axes.")
    valid = _valid_override_keys()
    if not equals or key not in valid:
        problem = f"--set {override}: there is no key '{key}'" if equals else f"--set {override}: write KEY=VALUE"
        raise PlanError(problem, hint=did_you_mean(key, valid, f"keys: {', '.join(valid)}"), key=key)
    values = [_scalar(part) for part in text.split(",") if part.strip()]
    if not values:
        raise PlanError(f"--set must be KEY=VALUE (got '{override}')", hint="--set queue_depth=1,16", key=key)
    if key in Axes.model_fields:
        return _set_axis(document, key, values)
    if "." in key:
        section, name = key.split(".")
        _section(document, section)[name] = values if len(values) > 1 else values[0]
        return (section, name)
    document[key] = values if len(values) > 1 or key in ("layers", "device_classes") else values[0]
    return (key,)


def _scalar(text: str) -> Any:
    try:
        return YAML(typ="safe").load(text.strip())
    except YAMLError:
        return text.strip()


def _section(document: CommentedMap, name: str) -> Any:
    if not isinstance(document.get(name), Mapping):
        document[name] = CommentedMap()
    return document[name]


def _set_axis(document: CommentedMap, key: str, values: list[Any]) -> tuple[str, ...]:
    """Replace an axis and return its path. In a plan of explicit patterns it is replaced inside every pattern."""
    if key in (*_PATTERN_AXES, "read_percent") and document.get("patterns"):
        patterns = []
        for entry in document["patterns"]:
            try:
                pattern = read_pattern(_plain(entry))
            except (ValueError, PydanticCustomError):
                pattern = entry
            for value in values:
                changed = {**pattern, key: value} if isinstance(pattern, Mapping) else pattern
                if changed not in patterns:
                    patterns.append(changed)
        document["patterns"] = patterns
        return ("patterns",)
    _section(document, "axes")[key] = values
    return ("axes", key)


def _explain(
    error: pydantic.ValidationError, document: CommentedMap, name: str, overrides: Mapping[str, tuple[str, ...]]
) -> PlanError:
    """Turn the first problem that pydantic found into a message with line, key and nearest valid name.

    `overrides` is override → path of what it replaced: what is wrong there is not in a line of the file.
    """
    # A misspelt key is also a missing one; the key that is there is what the reader can mend.
    problem = min(error.errors(), key=lambda problem: problem["type"] == "missing")
    path = _document_path(document, problem["loc"])
    blamed = [text for text, changed in overrides.items() if changed == path[: len(changed)] or not path]
    line = _line_of(document, path) if not blamed else None
    key = ".".join(str(part) for part in path) or "(the plan)"
    name = f"{name} with {' '.join(blamed)}" if blamed else name
    where = f"{name}, line {line}" if line else name
    text, hint = _describe(problem, path)
    return PlanError(f"{where}: {key}: {text}", hint=hint, key=key, line=line)


def _document_path(document: Any, location: Iterable[int | str]) -> tuple[int | str, ...]:
    """Return the part of pydantic's location that exists in the document (it adds tags of unions and functions)."""
    path: list[int | str] = []
    node = document
    for part in location:
        is_key = isinstance(node, Mapping) and part in node
        is_item = isinstance(node, list) and isinstance(part, int) and part < len(node)
        if not is_key and not is_item:
            # A missing key is worth naming, although the document does not have it.
            if isinstance(node, Mapping) and isinstance(part, str):
                path.append(part)
            break
        path.append(part)
        node = node[part]
    return tuple(path)


def _line_of(document: Any, path: Sequence[int | str]) -> int | None:
    """Return the 1-based line of the innermost part of `path` that came from the file."""
    line: int | None = None
    node = document
    for part in path:
        try:
            if isinstance(node, CommentedMap):
                line = node.lc.key(part)[0] + 1 if part in node else node.lc.line + 1
            elif isinstance(node, CommentedSeq):
                line = node.lc.item(part)[0] + 1
            else:
                break
            node = node[part]
        except (KeyError, AttributeError, TypeError, IndexError):
            # An override replaced this part; it has no line in the file.
            break
    return line


def _describe(problem: Any, path: Sequence[int | str]) -> tuple[str, str | None]:
    kind, context = problem["type"], problem.get("ctx") or {}
    if kind == "extra_forbidden":
        model = _SECTIONS.get(str(path[0]), Plan) if len(path) > 1 else Plan
        return "there is no such key", _nearest(str(path[-1]), list(model.model_fields))
    if kind == "literal_error":
        valid = [part.strip().strip("'") for part in context["expected"].replace(" or ", ", ").split(",")]
        return f"'{problem['input']}' is not valid", _nearest(str(problem["input"]), valid)
    if kind == "missing":
        return "is missing", None
    if kind == UNKNOWN_NAME:
        return problem["msg"], _nearest(context["given"], context["valid"])
    if kind == "value_error":
        return problem["msg"].removeprefix("Value error, "), None
    return f"{problem['msg'][0].lower()}{problem['msg'][1:]}, not {problem['input']!r}", None


def _nearest(given: str, valid: Sequence[str]) -> str:
    return f"{did_you_mean(given, valid, '', 0.5)} valid: {', '.join(valid)}".lstrip()
