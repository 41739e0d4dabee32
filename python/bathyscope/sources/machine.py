"""This machine, the load's client: its kernel, processors, memory, limits, and fio's version.

Whatever is missing (a file that this kernel does not have, a program that is not installed) is left out: the absence
of a fact is no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bathyscope.fields import as_int, parsing
from bathyscope.host import ProcessRequest, ReadRequest, Request
from bathyscope.host.process import BOOT_ID_PATH
from bathyscope.records import EnvironmentFact, RawAnswer, Record, Tables
from bathyscope.sources import network
from bathyscope.sources.facts import fact_table, latest
from bathyscope.sources.shape import Source
from bathyscope.spec.scope import Scope, ScopeLink

_CPU = "/sys/devices/system/cpu"
_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "host_name": "/proc/sys/kernel/hostname",
    "cpu_online": f"{_CPU}/online",
    "cpuinfo": "/proc/cpuinfo",
    "governor": f"{_CPU}/cpu0/cpufreq/scaling_governor",
    "cpuidle_driver": f"{_CPU}/cpuidle/current_driver",
    "cpuidle_governor": f"{_CPU}/cpuidle/current_governor_ro",
    "intel_idle_max_cstate": "/sys/module/intel_idle/parameters/max_cstate",
    "smt": f"{_CPU}/smt/control",
    "turbo_off": f"{_CPU}/intel_pstate/no_turbo",
    "meminfo": "/proc/meminfo",
    "loadavg": "/proc/loadavg",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "limits": "/proc/self/limits",
    "aio_max_nr": "/proc/sys/fs/aio-max-nr",
    "os_release": "/etc/os-release",
    "boot_id": BOOT_ID_PATH,
}
# Files that are a fact as they are.
_WHOLE = (
    *("kernel", "cpu_online", "cpuidle_driver", "cpuidle_governor", "intel_idle_max_cstate"),
    *("governor", "smt", "turbo_off", "loadavg", "transparent_hugepage", "aio_max_nr"),
)
# (fact, file, pattern)
_PARTS = (
    ("cpu_model", "cpuinfo", re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)),
    ("memory_total", "meminfo", re.compile(r"^MemTotal:\s*(.+)$", re.MULTILINE)),
    ("memory_available", "meminfo", re.compile(r"^MemAvailable:\s*(.+)$", re.MULTILINE)),
    ("open_files_limit", "limits", re.compile(r"^Max open files\s+(\S+)", re.MULTILINE)),
    ("locked_memory_limit", "limits", re.compile(r"^Max locked memory\s+(\S+)", re.MULTILINE)),
    ("operating_system", "os_release", re.compile(r'^PRETTY_NAME="?([^"\n]+)', re.MULTILINE)),
)
_FILES_LABEL, _FIO, _TICKS, _PAGE = "files", "fio_version", "clock_ticks", "page_size"


class Machine:
    """Files of this machine, `getconf`, `fio --version`."""

    name = "machine"
    records: tuple[type[Record], ...] = (EnvironmentFact,)
    period_s = 300.0
    timeout_s = 10.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the requests."""
        return [
            ReadRequest(_FILES_LABEL, (*_FILES.values(), *network.LINK_PATHS)),
            ProcessRequest(_FIO, ("fio", "--version"), timeout_s=self.timeout_s, root=scope.target.root),
            ProcessRequest(_TICKS, ("getconf", "CLK_TCK"), timeout_s=self.timeout_s),
            ProcessRequest(_PAGE, ("getconf", "PAGESIZE"), timeout_s=self.timeout_s),
        ]

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:  # noqa: ARG002 - the shape of a source
        """Return the facts about this machine, of the latest answers."""
        return {EnvironmentFact: fact_table(_facts(answers))}


SOURCE: Source = Machine()


def units(answers: Sequence[RawAnswer]) -> dict[str, int]:
    """Return the scope's clock_ticks_per_s and page_bytes, as far as getconf said. Raises ParseError."""
    given, sizes = latest(answers), {}
    for field, label in (("clock_ticks_per_s", _TICKS), ("page_bytes", _PAGE)):
        if label in given:
            with parsing(label):
                sizes[field] = as_int(given[label].stdout.decode())
                if sizes[field] <= 0:
                    raise ValueError(f"{sizes[field]} is not greater than 0")
    return sizes


def boot_id(answers: Sequence[RawAnswer]) -> str:
    """Return what tells this machine's running kernel from every other one; empty where it is not known."""
    given = latest(answers)
    return boot_id_of(given[_FILES_LABEL].files) if _FILES_LABEL in given else ""


def boot_id_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the content of BOOT_ID_PATH among files."""
    return dict(files).get(BOOT_ID_PATH, b"").decode("utf-8", "replace").strip()


def links(answers: Sequence[RawAnswer]) -> tuple[ScopeLink, ...]:
    """Return the network interfaces of this machine."""
    given = latest(answers)
    return network.links(given[_FILES_LABEL].files) if _FILES_LABEL in given else ()


def _facts(answers: Sequence[RawAnswer]) -> Iterator[tuple[str, str, Any]]:
    """Yield (subject, name, value)."""
    given = latest(answers)
    contents = dict(given[_FILES_LABEL].files) if _FILES_LABEL in given else {}
    texts = {name: contents.get(path, b"").decode("utf-8", "replace").strip() for name, path in _FILES.items()}
    subject = f"host {texts['host_name'] or 'localhost'}"
    if _FIO in given:
        yield subject, _FIO, given[_FIO].stdout.decode("utf-8", "replace").strip()
    for name in _WHOLE:
        if texts[name]:
            yield subject, name, texts[name]
    if texts["cpuinfo"]:
        yield subject, "cpu_count", len(re.findall(r"^processor\s*:", texts["cpuinfo"], flags=re.MULTILINE))
    if network_links := network.described(links(answers)):
        yield subject, "network_links", network_links
    for name, file, pattern in _PARTS:
        match = pattern.search(texts[file])
        if match is not None:
            yield subject, name, match[1].strip()
