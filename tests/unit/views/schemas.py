"""Holds the JSON of findings against the schemas of docs/reference/findings.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

SCHEMA: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs/reference/findings.json").read_text())


def check(text: str) -> str:
    """Return the NAME of the finding that a text is. Raises ValidationError where its schema does not fit."""
    plain = json.loads(text)
    (name,) = (
        name for name, of in SCHEMA["$defs"].items() if of["properties"].get("finding") == {"const": plain["finding"]}
    )
    # A later version of the same format may have more keys; this one has those alone.
    closed = {of: schema | {"additionalProperties": False} for of, schema in SCHEMA["$defs"].items()}
    jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": closed}).validate(plain)
    return str(name)
