"""JSON: the finding with all its fields; NaN and infinities as null."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TextIO

from bathyscope.records.finding import as_plain
from bathyscope.views.rows import plain_rows


def write(finding: Any, stream: TextIO, *, columns: Sequence[str] | None = None) -> None:
    """Write a finding as an object, plain rows as an array; one line feed at the end."""
    if dataclasses.is_dataclass(finding):
        plain = {"finding": type(finding).__name__, **as_plain(finding)}
    else:
        plain = as_plain(plain_rows(finding, columns))
    json.dump(plain, stream, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    stream.write("\n")
