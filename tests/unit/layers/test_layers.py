"""The layers: what they refuse, what they need, the exact commands, and rows of several processes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from bathyscope.errors import ToolError, UsageError
from bathyscope.host import ProcessRequest
from bathyscope.layers import LAYERS, LayerContext, LoadTables, traits, views
from bathyscope.layers.needs import DiskNeed, ImageNeed, ObjectsNeed, PoolNeed
from bathyscope.load import Place, fio_command, output_paths
from bathyscope.records import Histogram, Interval, RawAnswer, Result
from bathyscope.spec import DiskTarget, FioClient, Pattern, StepSpec, Target

Recorded = Callable[[str], list[RawAnswer]]
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
    assert [view.name for view in views()] == list(LAYERS) == list(traits()) == ["disk", "rados", "rbd"]
    assert [view.place for view in views()] == sorted({view.place for view in views()})
    assert [name for name, layer in LAYERS.items() if not layer.needs_cluster] == ["disk"]


def test_layers_are_told_apart_without_colour() -> None:
    for sign in ("title", "words", "slot", "shape", "dash"):
        assert len({getattr(view, sign) for view in views()}) == len(LAYERS)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (step("disk", device_class="nvme"), "no disk is named for the device class 'nvme'"),
        (step("disk", "randwrite", device_class="rom"), "may not be overwritten"),
        (step("disk", "randrw", device_class="rom"), "may not be overwritten"),
        (step("disk", working_set_bytes=65 * MIB), "larger than"),
        (step("disk", block=64 * MIB, jobs=2), "smaller than one block"),
        (step("rados", block=8 * MIB), "must be at most object_size"),
        (step("rados", "randrw", load_generator="rados_bench"), "does not mix"),
        (step("rados", load_generator="rados_bench"), "16384 writes"),
        (step("rbd", image_size_bytes=5 * MIB), "must be a multiple of object_size"),
        (step("rbd", image_size_bytes=8 * MIB, working_set_bytes=9 * MIB), "must be at most image_size"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_its_reason(asked: StepSpec, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        LAYERS[asked.layer].check(asked, CONTEXT)


@pytest.mark.parametrize(
    "asked",
    [
        step("disk"),
        step("disk", "randwrite"),
        step("disk", device_class="rom"),
        step("rados", "randwrite"),
        step("rados", "write", block=65536, load_generator="rados_bench"),
        step("rbd", "randrw", jobs=3),
    ],
)
def test_what_can_be_measured_is_not_refused(asked: StepSpec) -> None:
    LAYERS[asked.layer].check(asked, CONTEXT)


def test_a_disk_step_runs_in_the_disks_group_and_a_read_cannot_write() -> None:
    (request,) = LAYERS["disk"].plan(step("disk"), CONTEXT)
    assert (request.cgroup, request.root) == (DISK.cgroup, None)
    assert "--readonly" in request.argv
    found = options(request)
    assert found["filename"] == r"/dev/disk/by-path/pci\:0"
    assert (found["ioengine"], found["direct"], found["allow_file_create"]) == ("libaio", "1", "0")
    assert (found["size"], found["iodepth"], found["bs"]) == (str(64 * MIB), "16", "4096")
    # The scratch directory as the tools inside the root see it is elsewhere for this machine's fio.
    assert found["write_iops_log"] == "/roots/sid/run/bathy/fio-0"
    (write,) = LAYERS["disk"].plan(step("disk", "randwrite", load_generator="io_uring"), CONTEXT)
    assert "--readonly" not in write.argv
    assert (request.exclusive, write.exclusive) == ((), (DISK.path,))
    assert options(write)["ioengine"] == "io_uring"


def test_several_disk_jobs_share_the_disk_without_overlap() -> None:
    requests = LAYERS["disk"].plan(step("disk", "write", block=65536, jobs=3), CONTEXT)
    spans = [(int(options(r)["offset"]), int(options(r)["size"])) for r in requests]
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(spans))
    assert spans[-1][0] + spans[-1][1] <= 64 * MIB
    assert all(size % 65536 == 0 for _, size in spans)


def test_each_load_has_its_own_stated_seed_per_repeat_and_job() -> None:
    seeds = {
        options(request)["randseed"]
        for repeat in range(3)
        for request in LAYERS["rbd"].plan(step("rbd", jobs=2, repeat_index=repeat), CONTEXT)
    }
    assert len(seeds) == 6
    again = LAYERS["rbd"].plan(step("rbd", jobs=2, repeat_index=1), CONTEXT)[0]
    assert options(again)["randseed"] in seeds
    assert options(again)["randrepeat"] == "0"


def test_time_or_count_bounds_a_load() -> None:
    (timed,) = LAYERS["rbd"].plan(step("rbd"), CONTEXT)
    found = options(timed)
    assert (found["runtime"], found["ramp_time"], found["time_based"]) == ("10000ms", "2000ms", "1")
    assert found["log_avg_msec"] == "1000"
    (counted,) = LAYERS["rbd"].plan(step("rbd", io_count_limit=4099), CONTEXT)
    found = options(counted)
    assert (found["number_ios"], found["io_size"]) == ("4099", str(4099 * 4096))
    assert "time_based" not in found
    assert "ramp_time" not in found
    (limited,) = LAYERS["rbd"].plan(step("rbd", rate_iops=50, runtime_s=2), CONTEXT)
    found = options(limited)
    assert (found["rate_iops"], found["rate_process"], found["log_avg_msec"]) == ("50", "poisson", "200")


def test_rbd_needs_one_full_image_for_each_process() -> None:
    asked = step("rbd", "randrw", jobs=2, image_size_bytes=40 * MIB, object_size_bytes=8 * MIB)
    pool, *images = LAYERS["rbd"].needs(asked, CONTEXT)
    assert pool == PoolNeed(name="bathy-a1-rbd-hdd", device_class="hdd")
    assert len({need.name for need in images if isinstance(need, ImageNeed)}) == 2
    assert isinstance(images[0], ImageNeed)
    (fill,) = images[0].fill(CONTEXT)
    found = options(fill)
    assert (found["rw"], found["rbdname"]) == ("write", images[0].name)
    assert int(found["bs"]) == 4 * MIB
    assert "size" not in found
    assert pool.fill(CONTEXT) == ()
    assert [need.cluster_bytes for need in (pool, *images)] == [0, 40 * MIB, 40 * MIB]
    requests = LAYERS["rbd"].plan(asked, CONTEXT)
    assert [options(r)["rbdname"] for r in requests] == [name for need in images for _, name in need.images]
    assert requests[0].environment == (("CEPH_CONF", "/etc/ceph/c.conf"), ("CEPH_KEYRING", "/etc/ceph/k"))
    assert options(requests[0])["clientname"] == "bathy"
    assert options(requests[0])["rwmixread"] == "70"


def test_rados_prefills_the_objects_that_its_steps_share() -> None:
    read = step("rados", working_set_bytes=64 * MIB)
    write = step("rados", "randwrite", working_set_bytes=64 * MIB)
    assert LAYERS["rados"].needs(read, CONTEXT) == LAYERS["rados"].needs(write, CONTEXT)
    objects = LAYERS["rados"].needs(read, CONTEXT)[1]
    assert isinstance(objects, ObjectsNeed)
    (fill,) = objects.fill(CONTEXT)
    (load,) = LAYERS["rados"].plan(read, CONTEXT)
    for name in ("filename_format", "nrfiles", "size", "pool", "conf"):
        assert options(fill)[name] == options(load)[name]
    assert options(load)["touch_objects"] == "0"
    assert options(load)["file_service_type"] == "random"
    assert options(fill)["file_service_type"] == "sequential"
    assert options(load)["conf"] == "/etc/ceph/c.conf"


@pytest.mark.parametrize("object_mib", [1, 2, 4, 16])
def test_a_prefill_block_is_never_larger_than_an_object(object_mib: int) -> None:
    asked = step("rados", working_set_bytes=64 * MIB, object_size_bytes=object_mib * MIB)
    (fill,) = LAYERS["rados"].needs(asked, CONTEXT)[1].fill(CONTEXT)
    # fio writes nothing, without an error, where a file is smaller than the block.
    assert object_mib * MIB % int(options(fill)["bs"]) == 0


def test_a_disk_is_prefilled_only_where_it_may_be_overwritten() -> None:
    (need,) = LAYERS["disk"].needs(step("disk"), CONTEXT)
    assert need == DiskNeed(path=DISK.path, size_bytes=64 * MIB)
    (fill,) = need.fill(CONTEXT)
    assert fill.cgroup is None
    assert fill.exclusive == (DISK.path,)
    assert LAYERS["disk"].needs(step("disk", device_class="rom"), CONTEXT) == ()


def test_rados_bench_writes_a_bounded_amount_under_its_own_name() -> None:
    asked = step("rados", "write", block=65536, load_generator="rados_bench", working_set_bytes=64 * MIB)
    (request,) = LAYERS["rados"].plan(asked, CONTEXT)
    words = request.argv
    assert words[words.index("--max-objects") + 1] == "16"
    assert "--no-cleanup" in words
    assert "cleanup" not in words
    assert words[words.index("-o") + 1] == "/run/bathy/rados_bench-0.json"
    # The files of a load are read from outside of its root.
    assert output_paths(request) == ("/roots/sid/run/bathy/rados_bench-0.json",)
    assert LAYERS["rados"].left_bytes(asked, CONTEXT) == 64 * MIB
    read = asked.model_copy(update={"pattern": asked.pattern.model_copy(update={"op": "read"})})
    (_pool, objects) = LAYERS["rados"].needs(read, CONTEXT)
    (fill,) = objects.fill(CONTEXT)
    (load,) = LAYERS["rados"].plan(read, CONTEXT)
    run_name = lambda r: r.argv[r.argv.index("--run-name") + 1]  # noqa: E731
    assert run_name(fill) == run_name(load) != run_name(request)


def test_remote_clients_get_a_job_file_each_in_turn() -> None:
    clients = (FioClient(host="a", port=1), FioClient(host="b", port=2))
    context = dataclasses.replace(CONTEXT, target=TARGET.model_copy(update={"clients": clients}))
    requests = LAYERS["rbd"].plan(step("rbd", jobs=3), context)
    assert [r.argv[-2] for r in requests] == ["--client=a,1", "--client=b,2", "--client=a,1"]
    lines = (requests[1].stdin or b"").decode().splitlines()
    assert lines[0] == "[fio-1]"
    assert {"ioengine=rbd", "thread", "rw=randread"} <= set(lines)
    assert output_paths(requests[1])[0] == "/roots/sid/run/bathy/fio-1/fio-1_iops.log.b"
    # The disk is this machine's.
    assert not any("--client" in word for word in LAYERS["disk"].plan(step("disk"), context)[0].argv)


def test_a_line_break_cannot_smuggle_an_option() -> None:
    with pytest.raises(UsageError):
        fio_command.command("x", {"pool": "a\nexec_prerun=evil"}, place=Place())


def column(found: LoadTables, record: Any, name: str) -> list[Any]:
    return found.tables[record].column(name).to_pylist()


def test_rows_of_several_remote_processes_are_kept_apart(recorded: Recorded) -> None:
    answers = recorded("fio/3.33/client-two-processes")
    found = LAYERS["rbd"].parse(4, step("rbd", jobs=2), answers)
    assert column(found, Result, "client") == ["127.0.0.1:18775", "127.0.0.1:18776"]
    assert set(column(found, Histogram, "client")) == set(column(found, Result, "client"))
    assert set(column(found, Interval, "step_index")) == {4}
    same = [dataclasses.replace(answer, argv=answers[0].argv) for answer in answers]
    twice = LAYERS["rbd"].parse(4, step("rbd", jobs=2), same)
    assert len(set(column(twice, Result, "client"))) == 2


def test_the_window_of_a_step_spans_its_processes(recorded: Recorded) -> None:
    found = LAYERS["disk"].parse(0, step("disk", "randrw"), recorded("fio/3.33/disk-randrw"))
    assert found.measured_start_ns is not None
    assert found.measured_end_ns is not None
    assert found.measured_end_ns - found.measured_start_ns == max(column(found, Result, "runtime_ns"))
    assert set(column(found, Result, "direction")) == {"read", "write"}
    assert None not in column(found, Result, "cpu_user_s")


def test_a_failed_load_is_a_tool_error(recorded: Recorded) -> None:
    with pytest.raises(ToolError, match="rbd_open failed"):
        LAYERS["rbd"].parse(0, step("rbd"), recorded("fio/3.41/rbd-no-image"))


def test_a_prefill_that_wrote_less_is_an_error(recorded: Recorded) -> None:
    (answer,) = recorded("rados_bench/16.2.15/write")
    need = ObjectsNeed("p", "x", total_bytes=8 * MIB, object_size_bytes=4 * MIB, bench_block_bytes=65536)
    need.check_fill(answer)
    with pytest.raises(ToolError, match=r"wrote 8\.00 MiB of 9\.00 MiB"):
        dataclasses.replace(need, total_bytes=9 * MIB).check_fill(answer)
    (read,) = recorded("fio/3.33/rbd-randread")
    with pytest.raises(ToolError, match="wrote 0 B"):
        ImageNeed(pool="p", name="i", size_bytes=1, object_size_bytes=1).check_fill(read)
    PoolNeed(name="p", device_class="").check_fill(read)


def test_the_working_set_is_what_all_jobs_may_touch() -> None:
    assert LAYERS["disk"].working_set_bytes(step("disk"), CONTEXT) == 64 * MIB
    assert LAYERS["rados"].working_set_bytes(step("rados", jobs=2, working_set_bytes=64 * MIB), CONTEXT) == 64 * MIB
    assert LAYERS["rbd"].working_set_bytes(step("rbd", jobs=2, image_size_bytes=64 * MIB), CONTEXT) == 128 * MIB
    asked = step("rbd", jobs=2, image_size_bytes=64 * MIB, working_set_bytes=16 * MIB)
    assert LAYERS["rbd"].working_set_bytes(asked, CONTEXT) == 32 * MIB
