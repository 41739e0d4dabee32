"""Verbs of `bathy cache` run by tests, and what they answer."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result

from bathyscope.cache.config import Places
from bathyscope.errors import BathyscopeError

Bathy = Callable[..., Result]


def refused(result: Result, kind: type[BathyscopeError], words: str) -> BathyscopeError:
    assert isinstance(result.exception, kind), result.output
    assert words in result.exception.message
    assert result.exception.hint
    return result.exception


def install_unit(places: Places) -> None:
    units = places.root / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "bathyd@.service").touch()
