"""JSON of every finding: all its fields; NaN and infinities as null."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, TextIO

from bathyscope.records.finding import as_plain
from bathyscope.views import Options
from bathyscope.views.rows import plain_rows

_C1 = re.compile("[\x7f-\x9f\ud800-\udfff]")


def write(finding: Any, stream: TextIO, options: Options) -> None:
    """Write a finding as an object, plain rows as an array; one line feed at the end."""
    if dataclasses.is_dataclass(finding):
        plain = {"finding": type(finding).__name__, **as_plain(finding)}
    else:
        plain = as_plain(plain_rows(finding, options.columns))
    text = json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False, default=str)
    # JSON escapes control characters below 32 only; a terminal obeys those from 127 to 159 as well.
    stream.write(_C1.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")
