"""What holds for a whole run of tests: signals, the pool of labs, the order of tests.

Signals are as they are for a program that a terminal starts. Under nohup, and in the background of a shell, some are
ignored; programs that tests start would inherit that.
"""

from __future__ import annotations

import functools
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import lab_pool
from xdist.scheduler import LoadScopeScheduling

for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_configure() -> None:
    lab_pool.announce()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take the pool's labs down, in the process that outlives the workers."""
    if not hasattr(config, "workerinput"):
        lab_pool.close()


class _ByLab(LoadScopeScheduling):  # type: ignore[misc]
    """Tests of a file that has a lab for all of them run one after the other; all others where a worker is free."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if _shares_a_fixture(self.config.rootpath / file) else nodeid


@functools.cache
def _shares_a_fixture(file: Path) -> bool:
    return 'scope="module"' in file.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByLab | None:
    return _ByLab(config, log) if config.getvalue("dist") == "loadscope" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start what may take longest first: a worker that is left alone with it at the end would be waited for."""

    def limit_s(item: pytest.Item) -> float:
        marker = item.get_closest_marker("timeout") if "cluster" in item.keywords else None
        return float(marker.args[0]) if marker else 0.0

    items.sort(key=limit_s, reverse=True)
