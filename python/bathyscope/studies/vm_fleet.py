"""A cache over hard disks under a fleet of virtual machines: without it, with it for the first time, and repeated.

Each client is an fio process over librbd on an image of its own, as a virtual machine on its disk. Every access pattern
has a part of each image to itself, so that none finds cached what another one has read. Between the first and the
repeated phase these parts are read once in full while the disks take no time: so the repeated phase is a cache that
holds the data, whatever the length of a measurement.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Literal, get_args

from pydantic import Field

from bathyscope.bench.resources import make_context
from bathyscope.host import CephRequest, ProcessRequest
from bathyscope.host.ceph import connect
from bathyscope.lab import DeviceGroup, LabSpec, caches, load, unthrottled
from bathyscope.lab.bringup import command_all
from bathyscope.layers import common
from bathyscope.layers.common import LayerContext
from bathyscope.layers.needs import ImageNeed, PoolNeed
from bathyscope.load import fio_command
from bathyscope.load.fio_command import Options
from bathyscope.recording.look import look_at
from bathyscope.spec import Model, StepSpec
from bathyscope.spec.plan import Many, Seconds, Size
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES, Pattern
from bathyscope.spec.study import Expectation, StudyDesign
from bathyscope.studies.base import Measurement, Study

_RANDOM_READ = Pattern(op="randread", block_size_bytes=4 << 10, queue_depth=8)
_READ = Pattern(op="read", block_size_bytes=64 << 10, queue_depth=64)
_RANDOM_WRITE = Pattern(op="randwrite", block_size_bytes=4 << 10, queue_depth=8)
_WRITE = Pattern(op="write", block_size_bytes=64 << 10, queue_depth=64)
PatternName = Literal["randread-4K-qd8", "read-64K-qd64", "randwrite-4K-qd8", "write-64K-qd64"]
PATTERNS = (_RANDOM_READ, _READ, _RANDOM_WRITE, _WRITE)
_CLASS = "hdd"
Phase = Literal["no-cache", "first", "repeated"]
NO_CACHE, FIRST, REPEATED = get_args(Phase)

_WITHIN = 0.9
_CAVEATS = {
    "osd_caches_off": "The OSDs keep no data that was read in memory (bluestore_default_buffered_read is off). They "
    "start again before each phase, so reads come from the disk or from the cache.",
    "warmed": "Before the repeated phase everything that it reads was read once in full while the disks took no time.",
    "cache_ssd": "The SSD of each cache is a file on this machine's own disk, as quick as that. A part of each cache, "
    "at most 2 % of its size, is in DRAM.",
    "one_run": "Each cell is one measurement. The interval of a ratio is the variation between clients; another run of "
    "the study can differ by more.",
}
DESIGN = StudyDesign(
    name="vm-fleet",
    title="A cache over hard disks under a fleet of virtual machines",
    phases=get_args(Phase),
    expectations=(
        Expectation(pattern=_RANDOM_READ.name, phase=REPEATED, ratio_min=8),
        Expectation(pattern=_READ.name, phase=REPEATED, ratio_min=5),
        Expectation(pattern=_RANDOM_WRITE.name, phase=REPEATED, ratio_min=_WITHIN),
        Expectation(pattern=_WRITE.name, phase=REPEATED, ratio_min=_WITHIN),
    ),
    caveats=tuple(_CAVEATS.items()),
)


class Parameters(Model):
    """What can be set."""

    osds: int = Field(default=3, ge=1, le=8, description="OSDs, each on a simulated hard disk")
    replicas: int = Field(default=2, ge=1, le=3, description="copies of each object")
    images: int = Field(default=8, ge=1, le=64, description="images, with one client each")
    part_size: Size = Field(default=64 << 20, description="part of an image that one access pattern has")
    cache_size: Size = Field(default=4 << 30, description="SSD of the cache of each OSD")
    patterns: Many[PatternName] = Field(default=get_args(PatternName), description="access patterns")
    phases: Many[Phase] = Field(default=get_args(Phase), description="phases")
    runtime: Seconds = Field(default=8.0, gt=0, description="measured time of each access pattern in each phase")
    ramp: Seconds = Field(default=1.0, description="time under load before it")


def _lab(given: Parameters) -> LabSpec:
    return LabSpec(name="bathy-study", devices=(DeviceGroup(device_class=_CLASS, count=given.osds),))


def _measure(study: Measurement, given: Parameters) -> None:
    """Fill the images and measure the three phases. The caches stay on until the lab is taken down."""
    scratch = tempfile.mkdtemp(prefix="bathy-study-")
    try:
        context = LayerContext(study.lab.target(), "study", scratch)
        pool = PoolNeed(f"{context.prefix}-vms", _CLASS, min(given.replicas, given.osds))
        images = [
            ImageNeed(pool.name, f"vm-{number}", len(_used(given)) * given.part_size, DEFAULT_OBJECT_BYTES)
            for number in range(1, given.images + 1)
        ]
        _fill(study, pool, images, context)
        osds = [daemon.name for daemon in study.lab.daemons() if daemon.device and daemon.device.device_class == _CLASS]
        caches.restart_osds(study.lab, study.host, osds)
        if NO_CACHE in given.phases:
            _phase(study, given, NO_CACHE, images, context)
        study.note("putting caches over the OSDs")
        caches.put_on(study.lab, study.host, given.cache_size, osds=osds)
        study.lab = load(study.lab.name)
        if FIRST in given.phases:
            _phase(study, given, FIRST, images, context)
        if REPEATED in given.phases:
            study.note("reading in full what is read")
            with unthrottled(study.lab):
                study.load(list(_warming(given, images, context)))
            caches.restart_osds(study.lab, study.host, osds)
            _phase(study, given, REPEATED, images, context)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _fill(study: Measurement, pool: PoolNeed, images: list[ImageNeed], context: LayerContext) -> None:
    """Make the images and write them in full, at this machine's speed. Raises ToolError, LabError."""
    study.note(f"writing {len(images)} images in full")
    with contextlib.closing(connect(study.host, context.target)) as session:
        option = {"who": "osd", "name": "bluestore_default_buffered_read", "value": "false"}
        command_all(session, [{"prefix": "config set", **option}])
        # A manager that starts again (a module was switched) lets a question wait.
        session.command(CephRequest("osd df", "mgr", (("prefix", "osd df"), ("format", "json")), timeout_s=60))
        making = make_context(session, look_at(study.host, session, context.target).scope)
        for action in (action for need in (pool, *images) for action in need.make(making)):
            if isinstance(action.request, CephRequest):
                command_all(session, [dict(action.request.command)])
                caches.wait_whole(session)
            elif action.request is not None:
                study.load([action.request])
    with unthrottled(study.lab):
        study.load([request for image in images for request in image.fill(context)])


def _phase(study: Measurement, given: Parameters, phase: str, images: list[ImageNeed], context: LayerContext) -> None:
    for place, pattern in enumerate(_used(given)):
        study.note(f"{phase}: {pattern.name}")
        spec = StepSpec(
            layer="rbd", device_class=_CLASS, pattern=pattern, jobs=len(images), working_set_bytes=given.part_size,
            ramp_s=given.ramp, runtime_s=given.runtime,
        )  # fmt: skip
        study.step(
            phase,
            spec,
            [
                common.load(spec, job, context, _engine(image, context, place * given.part_size, given.part_size))
                for job, image in enumerate(images)
            ],
        )


def _used(given: Parameters) -> list[Pattern]:
    """Return the access patterns that are measured, in the order of their parts of an image."""
    return [pattern for pattern in PATTERNS if pattern.name in given.patterns]


def _warming(given: Parameters, images: list[ImageNeed], context: LayerContext) -> Iterator[ProcessRequest]:
    """Yield processes that read once in full what the repeated phase reads."""
    for image in images:
        for place in (place for place, pattern in enumerate(_used(given)) if pattern.reads):
            engine = _engine(image, context, place * given.part_size, given.part_size)
            options = {**engine, "thread": None, "rw": "read", "bs": _READ.block_size_bytes, "iodepth": 16}
            label = f"warm-{image.name}-{place}"
            yield fio_command.command(label, options, place=common.cluster_place(context), readonly=True, timeout_s=300)


def _engine(image: ImageNeed, context: LayerContext, offset_bytes: int, size_bytes: int) -> Options:
    return {"ioengine": "rbd", **image.options(context), "offset": offset_bytes, "size": size_bytes}


STUDY = Study(
    design=DESIGN,
    help="A cache over hard disks under virtual machines: without it, with it for the first time, and repeated.",
    parameters=Parameters,
    lab=_lab,
    check=caches.check_machine,
    measure=_measure,
)
