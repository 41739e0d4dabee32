"""What this machine says of itself, from recorded files and answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from bathyscope.errors import ParseError
from bathyscope.host import ProcessRequest, ReadRequest
from bathyscope.records import EnvironmentFact, RawAnswer, from_table
from bathyscope.sources import machine
from bathyscope.sources.machine import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t", root="/r"))


def answers_of(recorded: Recorded, version: str) -> list[RawAnswer]:
    """Return the answers as they come: the files, which were recorded one by one, in one."""
    answers = recorded(f"environment/{version}/answers")
    files = tuple((a.argv[1], a.stdout) for a in answers if a.label.startswith("file-"))
    return [RawAnswer("files", (), (), 0, b"", b"", 0, 0, files), *(a for a in answers if a.label == "fio_version")]


def facts_of(answers: list[RawAnswer]) -> dict[tuple[str, str], str]:
    rows = from_table(EnvironmentFact, SOURCE.parse(answers, SCOPE)[EnvironmentFact])
    assert {row.moment for row in rows} <= {"before"}
    return {(row.subject, row.name): row.value for row in rows}


@pytest.mark.parametrize(("version", "fio"), [("16.2.15", "fio-3.33"), ("18.2.7", "fio-3.39"), ("20.2.4", "fio-3.41")])
def test_fio_kernel_processors_and_memory(recorded: Recorded, version: str, fio: str) -> None:
    facts = facts_of(answers_of(recorded, version))
    host = next(subject for subject, name in facts if name == "kernel" and subject.startswith("host "))
    assert facts[host, "fio_version"] == fio
    assert facts[host, "cpu_count"] == "2"
    assert facts[host, "memory_total"].endswith("kB")
    assert int(facts[host, "open_files_limit"]) > 0
    assert facts[host, "operating_system"]
    assert len({subject for subject, _ in facts}) == 1


def said(label: str, text: bytes, exit_code: int = 0) -> RawAnswer:
    return RawAnswer(label, (), (), exit_code, text, b"", 0, 0)


def test_the_units_of_proc_are_what_getconf_said() -> None:
    answers = [said("clock_ticks", b"250\n"), said("page_size", b"65536\n")]
    assert machine.units(answers) == {"clock_ticks_per_s": 250, "page_bytes": 65536}
    assert machine.units([answers[0], said("page_size", b"", 127)]) == {"clock_ticks_per_s": 250}
    assert machine.units([]) == {}
    for text in (b"0\n", b"-4\n", b"\xff\n", b"many\n"):
        with pytest.raises(ParseError):
            machine.units([said("page_size", text)])


def test_what_is_missing_is_left_out() -> None:
    assert facts_of([]) == {}
    files = (("/proc/sys/kernel/osrelease", b"6.1\n"),)
    assert facts_of([dataclasses.replace(said("files", b""), files=files), said("fio_version", b"", 127)]) == {
        ("host localhost", "kernel"): "6.1"
    }


def test_files_are_read_at_one_moment_and_fio_is_that_of_the_target() -> None:
    files, fio, *getconf = SOURCE.plan(SCOPE)
    assert isinstance(files, ReadRequest)
    assert "/proc/cpuinfo" in files.paths
    assert isinstance(fio, ProcessRequest)
    assert fio.root == "/r"
    assert [request.argv for request in getconf if isinstance(request, ProcessRequest)] == [
        ("getconf", "CLK_TCK"),
        ("getconf", "PAGESIZE"),
    ]
