"""Values of options and spec files: the forms in which people write them, their bounds, and what errors say."""

from __future__ import annotations

import difflib
import math
import numbers
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import PydanticCustomError

from bathyscope.errors import UsageError
from bathyscope.units import format_bytes, format_size_short, parse_bytes, parse_seconds

EIB = 1 << 60
LONGEST_S = 100 * 365 * 86_400.0
_LIFE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(y|mo|d)?\s*$", re.IGNORECASE)
_OWN = "value"

M = TypeVar("M", bound=BaseModel)


def wrong(words: str, value: Any = ..., hint: str | None = None) -> PydanticCustomError:
    """Return the error of a value; `words` follow the name of the option: "must be greater than 0"."""
    got = "" if value is ... else f" (got {_shown(value)})"
    return PydanticCustomError(_OWN, "{words}", {"words": words + got, "hint": hint})


def did_you_mean(given: str, valid: Iterable[str], otherwise: str, cutoff: float = 0.6) -> str:
    """Return the hint with the name nearest to what was given, or `otherwise` when none is near."""
    near = difflib.get_close_matches(given, list(valid), 1, cutoff)
    return f"did you mean '{near[0]}'?" if near else otherwise


def checked(model: type[M], **values: Any) -> M:
    """Return the model of `values`. Raises UsageError with the option, the value given and the value expected."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise usage_error(error, model) from error


def usage_error(
    error: ValidationError, model: type[BaseModel], *, file: str = "", hint: str | None = None
) -> UsageError:
    """Return the first error of a validation in one line; a field's title is its option, else its path names it."""
    first = error.errors()[0]
    path = first["loc"]
    field = model.model_fields.get(str(path[0])) if path else None
    name = (field.title if field is not None else None) or ".".join(map(str, path if file else path[:1]))
    words = first["msg"]
    if first["type"] == "missing":
        words = "is missing"
    elif first["type"] != _OWN:
        words = f"{words.replace('Input should be', 'must be', 1)} (got {_shown(first['input'])})"
    message = " ".join(part for part in (f"{file}:" if file else "", name, words) if part)
    return UsageError(message, hint=first.get("ctx", {}).get("hint") or hint)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) and value.strip() else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def whole_number(least: int, most: int) -> BeforeValidator:
    """Return the validator of whole numbers from `least` to `most`; text and truth values are none."""

    def check(value: Any) -> int:
        if not _is_whole(value) or not least <= value <= most:
            raise wrong(f"must be a whole number from {least} to {_limit(most)}", value)
        return int(value)

    return BeforeValidator(check)


def number(most: float = math.inf) -> BeforeValidator:
    """Return the validator of finite numbers above 0 and at most `most`; text is none."""
    words = "must be a number greater than 0" + (f" and at most {most:g}" if most < math.inf else "")

    def check(value: Any) -> float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not 0 < value <= most:
            raise wrong(words, value)
        return float(value)

    return BeforeValidator(check)


def one_of(known: Callable[[], list[str]]) -> BeforeValidator:
    """Return the validator of a name out of `known()`."""

    def check(value: Any) -> str:
        if not isinstance(value, str) or value not in known():
            raise wrong("is not known", value, hint="one of: " + ", ".join(known()))
        return value

    return BeforeValidator(check)


def flag(value: Any) -> bool:
    """Validate a truth value; numbers are none."""
    if type(value).__name__ not in {"bool", "bool_"}:
        raise wrong("must be True or False", value)
    return bool(value)


def size_bytes(value: Any) -> int:
    """Validate a size in bytes: a whole number, or text as "400G" in binary units."""
    size = value
    if isinstance(value, str):
        try:
            size = parse_bytes(value)
        except UsageError as error:
            raise wrong("must be a size such as 4K, 64K or 400G", value) from error
    if not _is_whole(size):
        raise wrong("must be a size in whole bytes", value)
    if size < 1:
        raise wrong("must be greater than 0", value)
    if size > EIB:
        raise wrong(f"must be at most {format_bytes(EIB)}", value)
    return int(size)


def power_of_two(least: int, most: int) -> BeforeValidator:
    """Return the validator of sizes in bytes that are powers of two."""

    def check(value: Any) -> int:
        size = size_bytes(value)
        if size & (size - 1) or not least <= size <= most:
            bounds = f"from {format_size_short(least)} to {format_size_short(most)}"
            raise wrong(f"must be a power of two {bounds}", value, hint="4K, 16K, 64K, 256K")
        return size

    return BeforeValidator(check)


def decimal_bytes(value: Any) -> int:
    """Validate bytes as data sheets write them: "600T" is decimal, unless the i is written."""
    size = size_bytes(value)
    if not isinstance(value, str):
        return size
    power = "KMGTPE".find(value.strip().rstrip("bB")[-1:].upper()) + 1
    return round(size / 1024**power * 1000**power) if power else size


def ratio(value: Any) -> float:
    """Validate a ratio above 0 and at most 1, as number or text: 0.9, "0.9" or "90%"."""
    number = value
    if isinstance(value, str):
        body = value.strip()
        try:
            number = float(body.removesuffix("%")) / (100.0 if body.endswith("%") else 1.0)
        except ValueError:
            number = math.nan
    if not isinstance(number, int | float) or isinstance(number, bool) or not 0.0 < number <= 1.0:
        raise wrong("must be greater than 0 and at most 1", value, hint="0.9 or 90%")
    return float(number)


def seconds(value: Any) -> float:
    """Validate a duration in seconds: at least a nanosecond, as number or text: "10m", "1h"."""
    duration_s = _parsed_seconds(value)
    if not 1e-9 <= duration_s <= LONGEST_S:
        words = f"must be a duration greater than 0 and at most {LONGEST_S / 86_400:.0f} days"
        raise wrong(words, value, hint="10m, 1h, 1d")
    return duration_s


def latency_ns(value: Any) -> float:
    """Validate a latency above 0: nanoseconds, or text with its unit: "2ms"."""
    latency_ns = _parsed_seconds(value) * 1e9 if isinstance(value, str) else value
    if not isinstance(latency_ns, int | float) or not 0 < latency_ns < math.inf:
        raise wrong("must be a latency greater than 0", value, hint="2ms, 500us")
    return float(latency_ns)


def _parsed_seconds(value: Any) -> float:
    try:
        return (
            parse_seconds(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        )
    except UsageError:
        return math.nan


def years(value: Any) -> float:
    """Validate a life in years, 0 or more, as number or text: "3y", "18mo", "200d"."""
    match = _LIFE.match(value) if isinstance(value, str) else None
    if match is not None:
        return float(match[1]) / {"d": 365.0, "mo": 12.0}.get((match[2] or "y").lower(), 1.0)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise wrong("must be a life of the flash", value, hint="3y, 18mo, 200d, or 0 for any")


def listed(value: Any) -> tuple[Any, ...]:
    """Validate a list of at least one value; each counts once, in order. Text is no list."""
    if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        raise wrong("must be a list", value)
    items = tuple(value)
    if not items:
        raise wrong("is empty", hint="give at least one")
    return items


def _limit(most: int) -> str:
    """Return a limit as people write it: 2^64 - 1 in place of twenty digits."""
    if most < 1 << 20:
        return str(most)
    power = most.bit_length()
    return f"2^{power} - 1" if most == (1 << power) - 1 else f"2^{power - 1}" if most == 1 << (power - 1) else str(most)
