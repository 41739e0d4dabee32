"""Verbs of `bathy cache` run by tests, and what they answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from bathyscope.cache.config import Places
from bathyscope.errors import BathyscopeError
from bathyscope.host import Completed, ProcessRequest
from bathyscope.host.local import LocalHost

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


def programs_run(patch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the programs that are started from now on: none is, and all end well."""
    calls: list[tuple[str, ...]] = []

    def run(_: LocalHost, request: ProcessRequest) -> Completed:
        calls.append(request.argv)
        return Completed(request, 0, b"", b"", 0, 0)

    patch.setattr(LocalHost, "run", run)
    return calls
