"""Before a load: what makes it impossible is an error with a hint, what makes it doubtful a caveat."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bathyscope.bench import preflight
from bathyscope.bench.cluster import Health, OsdNode, PgStates
from bathyscope.errors import EnvironmentError_, UnhealthyError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeCephSession, FakeHost
from bathyscope.layers import LayerContext
from bathyscope.spec import DiskTarget, Pattern, StepSpec, Target
from bathyscope.spec.plan import Limits

ENGINES = b"Available IO engines:\n\tlibaio\n\tio_uring\n\trados\n\trbd\n"
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
READ = Pattern(op="randread", block_size_bytes=4096, queue_depth=1)


def fio(engines: bytes = ENGINES, code: int = 0) -> Callable[[ProcessRequest], FakeAnswer]:
    return lambda request: FakeAnswer(b"fio-3.33\n" if "--version" in request.argv else engines, exit_code=code)


def step(layer: str, **changes: object) -> StepSpec:
    return StepSpec.model_validate({"layer": layer, "pattern": READ, "ramp_s": 0, "runtime_s": 1, **changes})


def seen(*, fullness: float = 0.1, health: str = "HEALTH_OK", checks: dict[str, str] | None = None,
         states: dict[str, int] | None = None, size_bytes: int = 10 << 30) -> preflight.ClusterLook:  # fmt: skip
    nodes = tuple(OsdNode(i, f"node{i}", "ssd", up=True, fullness=fullness, size_bytes=size_bytes) for i in range(3))
    return preflight.ClusterLook(Health(health, checks or {}), PgStates(states or {"active+clean": 8}), nodes)


def test_fio_with_every_engine_is_enough() -> None:
    steps = [step("disk"), step("rados"), step("rbd")]
    assert preflight.check_tools(FakeHost({"fio": fio()}), TARGET, steps) == "fio-3.33"


def test_fio_is_not_installed() -> None:
    with pytest.raises(EnvironmentError_, match="fio is not installed"):
        preflight.check_tools(FakeHost(), TARGET, [step("rbd")])


def test_fio_lacks_the_rbd_engine() -> None:
    host = FakeHost({"fio": fio(ENGINES.replace(b"\trbd\n", b""))})
    with pytest.raises(EnvironmentError_, match="no engine 'rbd'") as error:
        preflight.check_tools(host, TARGET, [step("rbd")])
    assert "apt install fio" in (error.value.hint or "")
    # What the plan does not need may be missing.
    assert preflight.check_tools(host, TARGET, [step("rados")])


def test_fio_does_not_run() -> None:
    with pytest.raises(EnvironmentError_, match="failed"):
        preflight.check_tools(FakeHost({"fio": fio(code=127)}), TARGET, [step("rbd")])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (seen(fullness=0.85), "85 % full"),
        (seen(health="HEALTH_ERR", checks={"OSD_FULL": "1 full osd(s)"}), "is full"),
        (seen(health="HEALTH_WARN", checks={"POOL_FULL": "1 pool(s) full"}), "is full"),
        (seen(health="HEALTH_ERR", checks={"MON_DISK_CRIT": "mon a is low"}), "HEALTH_ERR"),
        (seen(states={"active+clean": 3, "active+recovering+degraded": 2}), "2 PGs active+recovering+degraded"),
    ],
)
def test_a_cluster_that_is_not_fit_is_refused(found: preflight.ClusterLook, words: str) -> None:
    with pytest.raises(UnhealthyError) as error:
        preflight.check_cluster(found, Limits())
    assert words in error.value.message
    assert error.value.hint


def test_a_healthy_cluster_passes_and_scrubbing_is_a_caveat() -> None:
    found = seen(states={"active+clean": 7, "active+clean+scrubbing+deep": 1}, health="HEALTH_WARN", checks={"X": "y"})
    preflight.check_cluster(found, Limits())
    caveats = preflight.cluster_caveats("r", found, FakeCephSession())
    assert {c.code for c in caveats} == {"health", "scrubbing"}


def test_a_prefill_that_would_fill_the_osds_is_refused_before_it_begins() -> None:
    steps = [step("rbd", device_class="ssd", image_size_bytes=8 << 30)]
    with pytest.raises(UnhealthyError, match="would fill"):
        preflight.check_space(seen(), steps, 3, Limits())
    preflight.check_space(seen(), steps, 1, Limits())


def test_the_one_slow_osd_is_named() -> None:
    def perf(*latencies_ms: float) -> FakeCephSession:
        infos = [{"id": i, "perf_stats": {"commit_latency_ms": ms}} for i, ms in enumerate(latencies_ms)]
        return FakeCephSession({"osd perf": {"osdstats": {"osd_perf_infos": infos}}})

    assert preflight.slowest_osd(perf(3, 90, 4)) == (1, 90, 4)
    assert preflight.slowest_osd(perf(3, 4, 5)) is None
    assert preflight.slowest_osd(FakeCephSession()) is None


def test_a_step_that_a_layer_cannot_run_is_told_before_anything_is_changed() -> None:
    context = LayerContext(TARGET, "bathy-x", "/tmp/x")
    with pytest.raises(UsageError, match="no disk for device class"):
        preflight.check_layers([step("disk", device_class="hdd")], context)


def test_a_mounted_disk_is_never_overwritten(tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    target = TARGET.model_copy(update={"disks": {"": DiskTarget(path=str(disk), destructive=True)}})
    host = FakeHost(files={"/proc/self/mounts": f"{disk} /mnt ext4 rw 0 0\n".encode()})
    with pytest.raises(UsageError, match="is mounted"):
        preflight.check_disks(host, target, [step("disk")])
    preflight.check_disks(FakeHost(files={"/proc/self/mounts": b""}), target, [step("disk")])


def test_the_governor_and_a_busy_machine_are_caveats() -> None:
    files = {
        "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": b"powersave\n",
        "/proc/loadavg": b"9.0 1 1 1/1 1\n",
        "/proc/cpuinfo": b"processor\t: 0\nprocessor\t: 1\n",
    }
    assert {c.code for c in preflight.host_caveats("r", FakeHost(files=dict(files)))} == {"cpu_governor", "client_busy"}
    assert preflight.host_caveats("r", FakeHost()) == []
