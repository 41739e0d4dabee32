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

# Everything that indexing, converting and computing with foreign values can raise. RecursionError comes from
# JSON that is nested too deep.
_FOREIGN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError)


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
        raise ValueError(f"{text!r:.80} is no image: POOL/IMAGE or POOL/NAMESPACE/IMAGE")
    pool, namespace = (*parts[:-1], "", "")[:2] if len(parts) > 1 else ("*", "")
    return pool, namespace, parts[-1]


def last_line(text: bytes) -> str:
    """Return the last line of what a program wrote, for an error message."""
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def json_after_noise(data: bytes, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON object that begins on a line of its own, and the lines around it.

    fio and rados print messages before, and fio also after, their JSON on the same stream. Raises ParseError.
    """
    text = data.decode("utf-8", "replace")
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    if start == 0 and not text.startswith("{"):
        last = [line for line in text.splitlines() if line.strip()][-1:] or ["nothing"]
        raise ParseError(f"{what} printed no JSON; its last line: {last[0][:200]}")
    try:
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the JSON of {what} is broken or cut off: {error}") from error
    if not isinstance(value, dict):
        raise ParseError(f"{what} printed JSON that is not an object")
    around = (text[:start] + text[end:]).splitlines()
    return value, [line.strip() for line in around if line.strip()]
