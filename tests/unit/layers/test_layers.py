"""The layers: what they refuse, what they need, the exact commands, and rows of several processes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bathyscope.errors import ToolError, UsageError
from bathyscope.host import Completed, ProcessRequest
from bathyscope.host.fake import FakeAnswer, FakeHost
from bathyscope.layers import (
    REGISTRY,
    DiskNeed,
    ImageNeed,
    LayerContext,
    ObjectsNeed,
    PoolNeed,
    answer_of,
    check_prefill,
    output_paths,
)
from bathyscope.sources import fio_command
from bathyscope.sources.base import RawAnswer, load_raw
from bathyscope.sources.fio_command import Place
from bathyscope.spec import DiskTarget, FioClient, Pattern, StepSpec, Target

FIXTURES = Path(__file__).parents[2] / "fixtures"
MIB = 1 << 20

DISK = DiskTarget(path="/dev/disk/by-path/pci:0", size_bytes=64 * MIB, cgroup="/sys/fs/cgroup/x", destructive=True)
TARGET = Target(
    name="t",
    conf="/etc/ceph/c.conf",
    keyring="/etc/ceph/k",
    client="client.bathy",
    root="/roots/sid",
    disks={"hdd": DISK, "rom": DiskTarget(path="/dev/sr0", size_bytes=64 * MIB)},
)
CONTEXT = LayerContext(TARGET, "bathy-a1", "/run/bathy")


def step(layer: str, op: str = "randread", *, block: int = 4096, depth: int = 16, **options: Any) -> StepSpec:
    pattern = Pattern(op=op, block_size_bytes=block, queue_depth=depth, read_percent=70)  # type: ignore[arg-type]
    values: dict[str, Any] = {"device_class": "hdd", "ramp_s": 2, "runtime_s": 10, **options}
    return StepSpec(layer=layer, pattern=pattern, **values)


def options(request: ProcessRequest) -> dict[str, str]:
    return dict(word.removeprefix("--").partition("=")[::2] for word in request.argv[1:])


def test_layers_are_ordered_from_the_disk_up() -> None:
    heights = [layer.height for layer in REGISTRY.values()]
    assert heights == sorted(heights)
    assert [name for name, layer in REGISTRY.items() if not layer.needs_cluster] == ["disk"]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (step("disk", device_class="nvme"), "no disk for device class 'nvme'"),
        (step("disk", "randwrite", device_class="rom"), "not marked destructive"),
        (step("disk", "randrw", device_class="rom"), "not marked destructive"),
        (step("disk", witness="rados_bench"), "no witness 'rados_bench'"),
        (step("disk", working_set_bytes=65 * MIB), "larger than"),
        (step("disk", block=64 * MIB, jobs=2), "smaller than one block"),
        (step("rados", witness="x"), "no witness 'x'"),
        (step("rados", block=8 * MIB), "larger than the object"),
        (step("rados", "randrw", witness="rados_bench"), "does not mix"),
        (step("rados", witness="rados_bench"), "16384 writes"),
        (step("rbd", witness="rados_bench"), "no witness"),
        (step("rbd", image_size_bytes=5 * MIB), "whole number of objects"),
        (step("rbd", image_size_bytes=8 * MIB, working_set_bytes=9 * MIB), "larger than the image"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_reason(asked: StepSpec, reason: str) -> None:
    assert reason in (REGISTRY[asked.layer].check(asked, CONTEXT) or "")


@pytest.mark.parametrize(
    "asked",
    [
        step("disk"),
        step("disk", "randwrite"),
        step("disk", device_class="rom"),
        step("rados", "randwrite"),
        step("rados", "write", block=65536, witness="rados_bench"),
        step("rbd", "randrw", jobs=3),
    ],
)
def test_what_can_be_measured_is_not_refused(asked: StepSpec) -> None:
    assert REGISTRY[asked.layer].check(asked, CONTEXT) is None


def test_a_disk_step_runs_in_the_disks_group_and_a_read_cannot_write() -> None:
    (request,) = REGISTRY["disk"].plan(step("disk"), CONTEXT)
    assert (request.cgroup, request.root) == (DISK.cgroup, None)
    assert "--readonly" in request.argv
    found = options(request)
    assert found["filename"] == r"/dev/disk/by-path/pci\:0"
    assert (found["ioengine"], found["direct"], found["allow_file_create"]) == ("libaio", "1", "0")
    assert (found["size"], found["iodepth"], found["bs"]) == (str(64 * MIB), "16", "4096")
    # The scratch directory as the tools inside the root see it is elsewhere for this machine's fio.
    assert found["write_iops_log"] == "/roots/sid/run/bathy/fio-0"
    (write,) = REGISTRY["disk"].plan(step("disk", "randwrite", witness="io_uring"), CONTEXT)
    assert "--readonly" not in write.argv
    assert (request.exclusive, write.exclusive) == ((), (DISK.path,))
    assert options(write)["ioengine"] == "io_uring"


def test_several_disk_jobs_share_the_disk_without_overlap() -> None:
    requests = REGISTRY["disk"].plan(step("disk", "write", block=65536, jobs=3), CONTEXT)
    spans = [(int(options(r)["offset"]), int(options(r)["size"])) for r in requests]
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
    assert spans[-1][0] + spans[-1][1] <= 64 * MIB
    assert all(size % 65536 == 0 for _, size in spans)


def test_each_load_has_its_own_stated_seed_per_repeat_and_job() -> None:
    seeds = {
        options(request)["randseed"]
        for repeat in range(3)
        for request in REGISTRY["rbd"].plan(step("rbd", jobs=2, repeat_index=repeat), CONTEXT)
    }
    assert len(seeds) == 6
    again = REGISTRY["rbd"].plan(step("rbd", jobs=2, repeat_index=1), CONTEXT)[0]
    assert options(again)["randseed"] in seeds
    assert options(again)["randrepeat"] == "0"


def test_time_or_count_bounds_a_load() -> None:
    (timed,) = REGISTRY["rbd"].plan(step("rbd"), CONTEXT)
    found = options(timed)
    assert (found["runtime"], found["ramp_time"], found["time_based"]) == ("10000ms", "2000ms", "1")
    assert found["log_avg_msec"] == "1000"
    (counted,) = REGISTRY["rbd"].plan(step("rbd", io_count_limit=4099), CONTEXT)
    found = options(counted)
    assert (found["number_ios"], found["io_size"]) == ("4099", str(4099 * 4096))
    assert "time_based" not in found
    assert "ramp_time" not in found
    (limited,) = REGISTRY["rbd"].plan(step("rbd", rate_iops=50, runtime_s=2), CONTEXT)
    found = options(limited)
    assert (found["rate_iops"], found["rate_process"], found["log_avg_msec"]) == ("50", "poisson", "200")


def test_rbd_needs_one_full_image_for_each_process() -> None:
    asked = step("rbd", "randrw", jobs=2, image_size_bytes=40 * MIB, object_size_bytes=8 * MIB)
    pool, *images = REGISTRY["rbd"].needs(asked, CONTEXT)
    assert pool == PoolNeed(name="bathy-a1-rbd-hdd", device_class="hdd")
    assert len({need.name for need in images if isinstance(need, ImageNeed)}) == 2
    (fill,) = REGISTRY["rbd"].prefill(images[0], asked, CONTEXT)
    found = options(fill)
    assert (found["rw"], found["rbdname"]) == ("write", images[0].name)  # type: ignore[union-attr]
    assert int(found["bs"]) == 4 * MIB
    assert "size" not in found
    assert REGISTRY["rbd"].prefill(pool, asked, CONTEXT) == ()
    requests = REGISTRY["rbd"].plan(asked, CONTEXT)
    assert [options(r)["rbdname"] for r in requests] == [need.name for need in images]  # type: ignore[union-attr]
    assert requests[0].environment == (("CEPH_CONF", "/etc/ceph/c.conf"), ("CEPH_KEYRING", "/etc/ceph/k"))
    assert options(requests[0])["clientname"] == "bathy"
    assert options(requests[0])["rwmixread"] == "70"


def test_rados_prefills_the_objects_that_its_steps_share() -> None:
    read = step("rados", working_set_bytes=64 * MIB)
    write = step("rados", "randwrite", working_set_bytes=64 * MIB)
    assert REGISTRY["rados"].needs(read, CONTEXT) == REGISTRY["rados"].needs(write, CONTEXT)
    objects = REGISTRY["rados"].needs(read, CONTEXT)[1]
    assert isinstance(objects, ObjectsNeed)
    (fill,) = REGISTRY["rados"].prefill(objects, read, CONTEXT)
    (load,) = REGISTRY["rados"].plan(read, CONTEXT)
    for name in ("filename_format", "nrfiles", "size", "pool", "conf"):
        assert options(fill)[name] == options(load)[name]
    assert options(load)["touch_objects"] == "0"
    assert options(load)["file_service_type"] == "random"
    assert options(fill)["file_service_type"] == "sequential"
    assert options(load)["conf"] == "/etc/ceph/c.conf"


@pytest.mark.parametrize("object_mib", [1, 2, 4, 16])
def test_a_prefill_block_is_never_larger_than_an_object(object_mib: int) -> None:
    asked = step("rados", working_set_bytes=64 * MIB, object_size_bytes=object_mib * MIB)
    (fill,) = REGISTRY["rados"].prefill(REGISTRY["rados"].needs(asked, CONTEXT)[1], asked, CONTEXT)
    # fio writes nothing, without an error, where a file is smaller than the block.
    assert object_mib * MIB % int(options(fill)["bs"]) == 0


def test_a_disk_is_prefilled_only_where_it_may_be_overwritten() -> None:
    (need,) = REGISTRY["disk"].needs(step("disk"), CONTEXT)
    assert need == DiskNeed(path=DISK.path, size_bytes=64 * MIB)
    (fill,) = REGISTRY["disk"].prefill(need, step("disk"), CONTEXT)
    assert fill.cgroup is None
    assert fill.exclusive == (DISK.path,)
    assert REGISTRY["disk"].needs(step("disk", device_class="rom"), CONTEXT) == ()


def test_the_witness_writes_a_bounded_amount_under_its_own_name() -> None:
    asked = step("rados", "write", block=65536, witness="rados_bench", working_set_bytes=64 * MIB)
    (request,) = REGISTRY["rados"].plan(asked, CONTEXT)
    words = request.argv
    assert words[words.index("--max-objects") + 1] == "16"
    assert "--no-cleanup" in words
    assert "cleanup" not in words
    assert words[words.index("-o") + 1] == "/run/bathy/rados_bench-0.json"
    assert output_paths(request) == ("/run/bathy/rados_bench-0.json",)
    read = asked.model_copy(update={"pattern": asked.pattern.model_copy(update={"op": "read"})})
    (_pool, objects) = REGISTRY["rados"].needs(read, CONTEXT)
    (fill,) = REGISTRY["rados"].prefill(objects, read, CONTEXT)
    (load,) = REGISTRY["rados"].plan(read, CONTEXT)
    run_name = lambda r: r.argv[r.argv.index("--run-name") + 1]  # noqa: E731
    assert run_name(fill) == run_name(load) != run_name(request)


def test_remote_clients_get_a_job_file_each_in_turn() -> None:
    clients = (FioClient(host="a", port=1), FioClient(host="b", port=2))
    context = dataclasses.replace(CONTEXT, target=TARGET.model_copy(update={"clients": clients}))
    requests = REGISTRY["rbd"].plan(step("rbd", jobs=3), context)
    assert [r.argv[-2] for r in requests] == ["--client=a,1", "--client=b,2", "--client=a,1"]
    lines = (requests[1].stdin or b"").decode().splitlines()
    assert lines[0] == "[fio-1]"
    assert {"ioengine=rbd", "thread", "rw=randread"} <= set(lines)
    assert output_paths(requests[1])[0] == "/run/bathy/fio-1_iops.log.b"
    # The disk is this machine's.
    assert not any("--client" in word for word in REGISTRY["disk"].plan(step("disk"), context)[0].argv)


def test_a_line_break_cannot_smuggle_an_option() -> None:
    with pytest.raises(UsageError):
        fio_command.command("x", {"pool": "a\nexec_prerun=evil"}, place=Place())


@pytest.fixture
def recorded() -> Callable[[str], list[RawAnswer]]:
    return lambda path: load_raw(FIXTURES / path)


def test_rows_of_several_remote_processes_are_kept_apart(recorded: Callable[[str], list[RawAnswer]]) -> None:
    rows = REGISTRY["rbd"].parse("r", 0, step("rbd", jobs=2), recorded("fio/3.33/client-two-processes"))
    assert [row.client for row in rows.results] == ["127.0.0.1:18775", "127.0.0.1:18776"]
    assert {row.client for row in rows.histograms} == {row.client for row in rows.results}
    same = [dataclasses.replace(a, argv=recorded("fio/3.33/client-two-processes")[0].argv) for a in
            recorded("fio/3.33/client-two-processes")]  # fmt: skip
    twice = REGISTRY["rbd"].parse("r", 0, step("rbd", jobs=2), same)
    assert len({row.client for row in twice.results}) == 2


def test_the_window_of_a_step_spans_its_processes(recorded: Callable[[str], list[RawAnswer]]) -> None:
    answers = recorded("fio/3.33/disk-randrw")
    rows = REGISTRY["disk"].parse("r", 0, step("disk", "randrw"), answers)
    assert rows.measured_start_ns is not None
    assert rows.measured_end_ns is not None
    assert rows.measured_end_ns - rows.measured_start_ns == max(row.runtime_ns for row in rows.results)
    assert {row.direction for row in rows.results} == {"read", "write"}
    assert all(row.cpu_user_s is not None for row in rows.results)


def test_a_failed_load_is_a_tool_error(recorded: Callable[[str], list[RawAnswer]]) -> None:
    with pytest.raises(ToolError, match="rbd_open failed"):
        REGISTRY["rbd"].parse("r", 0, step("rbd"), recorded("fio/3.41/rbd-no-image"))


def test_a_prefill_that_wrote_less_is_an_error(recorded: Callable[[str], list[RawAnswer]]) -> None:
    (answer,) = recorded("rados_bench/16.2.15/write")
    need = ObjectsNeed(pool="p", prefix="x", total_bytes=8 * MIB)
    check_prefill(need, answer)
    with pytest.raises(ToolError, match=r"wrote 8\.00 MiB of 9\.00 MiB"):
        check_prefill(dataclasses.replace(need, total_bytes=9 * MIB), answer)
    (read,) = recorded("fio/3.33/rbd-randread")
    with pytest.raises(ToolError, match="wrote 0 B"):
        check_prefill(ImageNeed(pool="p", name="i", size_bytes=1, object_size_bytes=1), read)
    check_prefill(PoolNeed(name="p", device_class=""), read)


def test_the_files_of_a_load_are_read_through_its_root() -> None:
    (request,) = REGISTRY["rbd"].plan(step("rbd"), CONTEXT)
    host = FakeHost({"fio": FakeAnswer(b"{}")}, {"/roots/sid/run/bathy/fio-0_iops.log": b"1, 2, 0, 4096, 0\n"})
    completed: Completed = host.run(request)
    assert answer_of(host, completed).files == (("fio-0_iops.log", b"1, 2, 0, 4096, 0\n"),)
