"""JSON of every finding: all its fields; NaN and infinities as null."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, TextIO

from bathyscope.records.finding import FORMAT_VERSION, as_plain
from bathyscope.views import Options
from bathyscope.views.labels import escaped_json
from bathyscope.views.rows import plain_rows


def write(finding: Any, stream: TextIO, options: Options) -> None:
    """Write a finding as an object, plain rows as an array; one line feed at the end."""
    plain = as_plain(finding if dataclasses.is_dataclass(finding) else plain_rows(finding, options.columns))
    if dataclasses.is_dataclass(finding):
        plain = named(finding, plain)
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    # JSON itself escapes control characters below 32 only.
    stream.write(escaped_json(text) + "\n")


def named(finding: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a finding after its class and the version of their format."""
    return {"finding": type(finding).__name__, "format_version": FORMAT_VERSION, **plain}
