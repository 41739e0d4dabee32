"""Strict reading of foreign JSON and numbers: what does not fit becomes a ParseError, never another exception."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from bathyscope.errors import ParseError

_INT64_MAX = 2**63 - 1

# Python makes up to 85 bytes of a sign, and 40 of a byte: 64 MB of "[[],[],…" would take 2 GB. The placement groups of
# 10,000 OSDs, in brief, are 7 million of these signs.
_JSON_SIGNS = b",:[{"
_JSON_SIGNS_MAX = 16 << 20

# What is looked at of a program's words for people.
_WORDS_BYTES = 64 << 10

# Everything that indexing, converting and computing with foreign values can raise. RecursionError comes from
# JSON that is nested too deep.
_FOREIGN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError)


def load_json(text: bytes | str) -> Any:
    """Return the value of a JSON text, whoever wrote it, in bounded memory. Raises ValueError, and nothing else.

    The only way to foreign JSON: `json.loads` takes forty times what it is given, and more than Python's stack.
    """
    _must_be_few_values(text)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _must_be_few_values(text: bytes | str) -> None:
    signs = sum(text.count(chr(sign)) if isinstance(text, str) else text.count(sign) for sign in _JSON_SIGNS)
    if signs > _JSON_SIGNS_MAX:
        raise ValueError(f"more than {_JSON_SIGNS_MAX >> 20} million values are not read")


@contextlib.contextmanager
def parsing(what: str) -> Iterator[None]:
    """Turn whatever goes wrong while foreign data is read into a ParseError that says what was read."""
    try:
        yield
    except ParseError:
        raise
    except _FOREIGN as error:
        detail = f"no field {error}" if isinstance(error, KeyError) else str(error)
        raise ParseError(f"{what} has an unexpected form: {detail or type(error).__name__}") from error


def as_int(value: Any) -> int:
    """Return a JSON number, or text, as an integer that fits 64 bits. Raises ValueError or TypeError."""
    plain = _numeric(value)
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ValueError(f"{plain!r} is not finite")
    number = int(plain)
    if abs(number) > _INT64_MAX:
        raise ValueError(f"{number} does not fit 64 bits")
    return number


def as_float(value: Any) -> float:
    """Return a JSON number, or text, as a finite float. Raises ValueError or TypeError."""
    number = float(_numeric(value))
    if not math.isfinite(number):
        raise ValueError(f"{value!r:.40} is not finite")
    return number


def _numeric(value: Any) -> int | float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError(f"{value!r:.40} is not a number")
    return value


def as_dict(value: Any) -> dict[str, Any]:
    """Return a JSON object. Raises TypeError."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} is not an object")
    return value


def as_list(value: Any) -> list[Any]:
    """Return a JSON array. Raises TypeError."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} is not a list")
    return value


def address_of(text: str) -> str:
    """Return the address alone of what Ceph writes: 10.0.0.7:0/223, [fd00::7]:0/223, [v2:10.0.0.7:6800/18,v1:…]."""
    first = re.sub(r"^\[?(v[12]|any):", "", text.partition(",")[0])
    if first.startswith("["):
        return first[1:].partition("]")[0]
    # An address of version 6 that stands alone has no port.
    return first.partition(":")[0] if first.count(":") == 1 else first.partition("/")[0]


def image_parts(text: str) -> tuple[str, str, str]:
    """Return (pool, namespace, image) of [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]; the pool is * where it is not said.

    Raises ValueError.
    """
    parts = text.partition("@")[0].split("/")
    if not all(parts) or len(parts) > 3:
        raise ValueError(f"{text!r:.80} is not an image: POOL/IMAGE or POOL/NAMESPACE/IMAGE")
    pool, namespace = (*parts[:-1], "", "")[:2] if len(parts) > 1 else ("*", "")
    return pool, namespace, parts[-1]


def last_lines(text: bytes) -> list[str]:
    """Return the last lines of what a program wrote for people, without empty ones: 64 KiB of it at most."""
    lines = text[-_WORDS_BYTES:].decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def last_line(text: bytes) -> str:
    """Return the last line of what a program wrote, for an error message."""
    lines = last_lines(text)
    return lines[-1][:300] if lines else "no message"


def json_after_noise(data: bytes, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON object that begins on a line of its own, and the lines around it.

    fio and rados print messages before, and fio also after, their JSON on the same stream. Raises ParseError.
    """
    start = 0 if data.startswith(b"{") else data.find(b"\n{") + 1
    if start == 0 and not data.startswith(b"{"):
        raise ParseError(f"{what} printed no JSON; its last line: {(last_lines(data) or ['nothing'])[-1][:200]}")
    text = data[start:].decode("utf-8", "replace")
    try:
        _must_be_few_values(text)
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the JSON of {what} is broken or cut off: {error}") from error
    if not isinstance(value, dict):
        raise ParseError(f"{what} printed JSON that is not an object")
    return value, [
        *last_lines(data[max(0, start - _WORDS_BYTES) : start]),
        *last_lines(text[end:][-_WORDS_BYTES:].encode()),
    ]
