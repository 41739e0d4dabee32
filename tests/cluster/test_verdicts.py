"""Cases of benchmarks/verdicts on a real lab: what they inject is recorded and named, and nothing of it is left."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.fast, pytest.mark.timeout(240)]
NAMES = ("truth", "bed", "injectors", "cases", "recorded", "recordings", "runner")


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, ModuleType]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks" / "verdicts"))
        yield {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        sys.modules.pop(name, None)


def surroundings(cluster: Any) -> dict[str, Any]:
    """Return what injectors change of this machine: device limits, control groups of the OSDs, where fio is."""
    osds = [daemon for daemon in cluster.target.daemons if daemon.name.startswith("osd.")]
    group = Path(cluster.target.disks["ssd"].cgroup or "/nowhere")
    limits = [*group.glob("blkio.throttle.*_device"), *group.glob("io.max")]
    return {
        "limits": {file.name: file.read_text() for file in limits},
        "groups": {osd.name: Path(f"/proc/{osd.pid}/cgroup").read_text() for osd in osds},
        "made": [str(path) for path in Path("/sys/fs/cgroup/cpu").glob(f"*-verdicts-{os.getpid()}-*")],
        "fio": shutil.which("fio"),
    }


def _samples(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the samples of each OSD."""
    return {f"osd.{n}": [row for row in rows if row["process"] == f"osd.{n}"] for n in range(3)}


@pytest.mark.parametrize(
    "case",
    [
        ("slow-device", "randread-4K-qd16", lambda rows: 50.0 in {row["read_iops_limit"] for row in rows}),
        ("osd-cpu", "randread-4K-qd16", lambda rows: sum(row["cpu_throttled_s"] or 0.0 for row in rows) > 0),
        ("message-cap", "randwrite-4K-qd16", None),
    ],
    ids=lambda case: str(case[0]),
)
def test_what_limits_clients_is_recorded_named_and_undone(
    cluster: Any, verdicts: dict[str, ModuleType], tmp_path: Path, tools: Any, case: Any
) -> None:
    name, pattern, injected = case
    found = verdicts["cases"].CASES[name]
    short = dataclasses.replace(found, loads={pattern: found.loads[pattern]}, plan={"axes": {"image_size": "128M"}})
    before = surroundings(cluster)
    bed = verdicts["bed"].Bed(cluster.name)
    try:
        ((run, judged),) = verdicts["recordings"].record_case(bed, short, tmp_path, seconds=14.0)
    except verdicts["injectors"].UnsupportedError as error:
        pytest.skip(str(error))
    assert surroundings(cluster) == before
    if injected is not None:
        samples = _samples(tools.rows(run, "cgroup_sample"))
        assert {osd for osd, rows in samples.items() if injected(rows)} == {"osd.0"}
    assert judged.outcome == "right", judged.sentence


def test_an_injection_is_undone_after_an_error(cluster: Any, verdicts: dict[str, ModuleType]) -> None:
    inject, bed = verdicts["injectors"], verdicts["bed"].Bed(cluster.name)
    everything = (
        inject.slow_device("osd.1", read_iops=50),
        inject.cpu_quota(0.5, "osd.0"),
        inject.client_quota(0.5),
        inject.primary_affinity("osd.2", 0.0),
        inject.crush_weight("osd.2", 3.0),
        inject.option("osd.0", osd_client_message_cap=1),
        inject.hog(1),
    )
    before = during = surroundings(cluster)
    try:
        with contextlib.suppress(InterruptedError), inject.together(*everything)(bed):
            during = surroundings(cluster)
            raise InterruptedError
    except inject.UnsupportedError as error:
        pytest.skip(str(error))
    assert surroundings(cluster) == before
    assert all(during[name] != before[name] for name in before)
    dump = bed.ask("osd", "dump")["osds"]
    assert [osd["primary_affinity"] for osd in dump] == [1.0, 1.0, 1.0]
    weights = [node["crush_weight"] for node in bed.ask("osd", "df")["nodes"]]
    assert len(set(weights)) == 1
    assert "osd_client_message_cap" not in bed.ask("tell", "osd.0", "config", "diff")["diff"]
    bed.settle()
