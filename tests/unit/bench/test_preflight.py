"""Before a load: what makes it impossible or dangerous is an error with a hint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bathyscope.bench import preflight
from bathyscope.bench.preflight import ClusterLook
from bathyscope.errors import EnvironmentError_, UnhealthyError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers import LayerContext
from bathyscope.records import ClusterStatus, HealthCheck, to_table
from bathyscope.spec import DiskTarget, Pattern, StepSpec, Target
from bathyscope.spec.plan import Limits
from bathyscope.spec.scope import Scope, ScopeOsd

ENGINES = b"Available IO engines:\n\tlibaio\n\tio_uring\n\trados\n\trbd\n"
TARGET = Target(name="c", conf="/etc/ceph/ceph.conf")
CONTEXT = LayerContext(TARGET, "bathy-x", "/tmp/x")
READ = Pattern(op="randread", block_size_bytes=4096, queue_depth=1)


def fio(engines: bytes = ENGINES, code: int = 0) -> Callable[[ProcessRequest], FakeAnswer]:
    return lambda request: FakeAnswer(b"fio-3.33\n" if "--version" in request.argv else engines, exit_code=code)


def step(layer: str, **changes: object) -> StepSpec:
    return StepSpec.model_validate({"layer": layer, "pattern": READ, "ramp_s": 0, "runtime_s": 1, **changes})


def scope(*, fullness: float = 0.1, size_bytes: int = 10 << 30) -> Scope:
    osds = [
        ScopeOsd(osd=i, host=f"node{i}", device_class="ssd", fullness=fullness, size_bytes=size_bytes) for i in range(3)
    ]
    return Scope(target=TARGET, osds=tuple(osds))


def look(
    *, health: str = "HEALTH_OK", checks: dict[str, str] | None = None, not_clean: str | None = None, unknown: int = 0
) -> ClusterLook:
    """Return the last of two looks; the first one saw a cluster that is fit for nothing."""
    statuses = [
        ClusterStatus(1, "HEALTH_ERR", 0, 8, 0, 8, 0, "8 PGs down", "0"),
        ClusterStatus(2, health, 0, 8, 8 - unknown, unknown, 1, not_clean, None),
    ]
    rows = [HealthCheck(1, "OSD_FULL", "HEALTH_ERR", "all of them")]
    rows += [HealthCheck(2, code, health, text) for code, text in (checks or {}).items()]
    return ClusterLook.of({ClusterStatus: to_table(ClusterStatus, statuses), HealthCheck: to_table(HealthCheck, rows)})


def test_fio_with_every_engine_is_enough() -> None:
    steps = [step("disk"), step("rados"), step("rbd")]
    preflight.check_tools(FakeHost({"fio": fio()}), TARGET, steps)


def test_fio_is_not_installed() -> None:
    with pytest.raises(EnvironmentError_, match="fio is not installed"):
        preflight.check_tools(FakeHost(), TARGET, [step("rbd")])


def test_fio_lacks_the_rbd_engine() -> None:
    host = FakeHost({"fio": fio(ENGINES.replace(b"\trbd\n", b""))})
    with pytest.raises(EnvironmentError_, match="no engine 'rbd'") as error:
        preflight.check_tools(host, TARGET, [step("rbd")])
    assert "apt install fio" in (error.value.hint or "")
    # What the plan does not need may be missing.
    preflight.check_tools(host, TARGET, [step("rados")])


def test_fio_does_not_run() -> None:
    with pytest.raises(EnvironmentError_, match="failed"):
        preflight.check_tools(FakeHost({"fio": fio(code=127)}), TARGET, [step("rbd")])


@pytest.mark.parametrize(
    ("fullness", "found", "words"),
    [
        (0.85, look(), "85 % full"),
        (0.1, look(health="HEALTH_ERR", checks={"OSD_FULL": "1 full osd(s)"}), "is full"),
        (0.1, look(health="HEALTH_WARN", checks={"POOL_FULL": "1 pool(s) full"}), "is full"),
        (0.1, look(health="HEALTH_ERR", checks={"MON_DISK_CRIT": "mon a is low"}), "HEALTH_ERR"),
        (0.1, look(not_clean="2 PGs active+recovering+degraded"), "not clean: 2 PGs active+recovering+degraded"),
        (0.1, look(unknown=3), "not clean: 3 PGs unknown"),
    ],
)
def test_a_cluster_that_is_not_fit_is_refused(fullness: float, found: ClusterLook, words: str) -> None:
    with pytest.raises(UnhealthyError) as error:
        preflight.check_cluster(scope(fullness=fullness), found, Limits())
    assert words in error.value.message
    assert error.value.hint


def test_a_healthy_cluster_passes_while_it_is_scrubbed() -> None:
    preflight.check_cluster(scope(), look(health="HEALTH_WARN", checks={"X": "y"}), Limits())


def test_a_cluster_without_an_osd_or_without_a_status_is_refused() -> None:
    with pytest.raises(UnhealthyError, match="no OSD"):
        preflight.check_cluster(Scope(target=TARGET), look(), Limits())
    with pytest.raises(UnhealthyError, match="did not report"):
        ClusterLook.of({ClusterStatus: to_table(ClusterStatus, [])})


def test_a_prefill_that_would_fill_the_osds_is_refused_before_it_begins() -> None:
    steps = [step("rbd", device_class="ssd", image_size_bytes=8 << 30)]
    with pytest.raises(UnhealthyError, match="would fill"):
        preflight.check_space(scope(), steps, CONTEXT, Limits(), default_replicas=3)
    preflight.check_space(scope(), steps, CONTEXT, Limits(), default_replicas=1)
    once = LayerContext(TARGET, "bathy-x", "/tmp/x", replicas=1)
    preflight.check_space(scope(), steps, once, Limits(), default_replicas=3)


def test_what_several_steps_share_is_stored_once_and_what_a_load_leaves_counts() -> None:
    read = step("rbd", image_size_bytes=2 << 30)
    again = read.model_copy(update={"repeat_index": 1})
    preflight.check_space(scope(), [read, again, read.model_copy(update={"jobs": 2})], CONTEXT, Limits(),
                          default_replicas=3)  # fmt: skip
    write = Pattern(op="write", block_size_bytes=65536, queue_depth=1)
    bench = step("rados", load_generator="rados_bench", pattern=write, working_set_bytes=2 << 30)
    repeats = [bench.model_copy(update={"repeat_index": repeat}) for repeat in range(4)]
    preflight.check_space(scope(), repeats[:3], CONTEXT, Limits(), default_replicas=3)
    with pytest.raises(UnhealthyError, match="would fill"):
        preflight.check_space(scope(), repeats, CONTEXT, Limits(), default_replicas=3)


def test_a_step_that_a_layer_cannot_run_is_told_before_anything_is_changed() -> None:
    asked = step("disk", device_class="hdd")
    with pytest.raises(UsageError, match="no disk is named for the device class") as error:
        preflight.check_layers([asked], CONTEXT)
    assert error.value.message.startswith(f"{asked.key} cannot be run: ")
    assert "--disk hdd=PATH" in (error.value.hint or "")
    assert "--layer" in (error.value.hint or "")
    theirs = TARGET.model_copy(update={"disks": {"": DiskTarget(path="/dev/sdx")}})
    write = step("disk", pattern=READ.model_copy(update={"op": "randwrite"}))
    with pytest.raises(UsageError, match="may not be overwritten") as error:
        preflight.check_layers([write], LayerContext(theirs, "bathy-x", "/tmp/x"))
    assert "--destroy-disk-content" in (error.value.hint or "")


def test_a_disk_that_was_named_for_a_class_that_no_step_is_of_is_refused(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    own, named = DiskTarget(path=str(disk)), DiskTarget(path=str(disk), named=True)
    host = FakeHost(files={"/proc/self/mounts": b""})
    steps = [step("disk", device_class="hdd"), step("rbd", device_class="ssd")]
    for disks in ({"hdd": own, "ssd": own}, {"hdd": named, "ssd": own}):
        context = LayerContext(TARGET.model_copy(update={"disks": disks}), "bathy-x", "/tmp/x")
        preflight.check_disks(host, steps, context)
    wrong = LayerContext(TARGET.model_copy(update={"disks": {"hdd": own, "sdd": named}}), "bathy-x", "/tmp/x")
    with pytest.raises(UsageError, match="'sdd', and no step is of it") as error:
        preflight.check_disks(host, steps, wrong)
    assert "hdd" in (error.value.hint or "")
    preflight.check_disks(host, steps[1:], wrong)


def test_a_mounted_disk_is_never_overwritten(tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    target = TARGET.model_copy(update={"disks": {"": DiskTarget(path=str(disk), destructive=True)}})
    context = LayerContext(target, "bathy-x", "/tmp/x")
    host = FakeHost(files={"/proc/self/mounts": f"{disk} /mnt ext4 rw 0 0\n".encode()})
    with pytest.raises(UsageError, match="is mounted"):
        preflight.check_disks(host, [step("disk")], context)
    unused = FakeHost(files={"/proc/self/mounts": b""})
    preflight.check_disks(unused, [step("disk")], context)
    disk.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        preflight.check_disks(unused, [step("disk")], context)
    preflight.check_disks(unused, [step("rbd")], context)
