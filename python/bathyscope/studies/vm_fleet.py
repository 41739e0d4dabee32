"""A cache over hard disks under a fleet of virtual machines: without it, with it for the first time, and repeated.

Each client is an fio process over librbd on an image of its own, as a virtual machine on its disk. Every access pattern
has a part of each image to itself, so that none finds cached what another one has read. Before the repeated phase these
parts are read once in full while the disks take no time: so it is a cache that holds the data, whatever the length of a
measurement.
"""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from bathyscope.lab import DeviceGroup, LabSpec
from bathyscope.spec import Model
from bathyscope.spec.plan import (
    PRECISE_REPEATS_MIN,
    Axes,
    Capture,
    Limits,
    Many,
    Phase,
    Plan,
    PlanPattern,
    Seconds,
    Size,
    read_pattern,
)
from bathyscope.spec.step import DEFAULT_OBJECT_BYTES
from bathyscope.spec.study import Expectation, StudyDesign
from bathyscope.spec.values import wrong
from bathyscope.studies.base import Study

PatternName = Literal["randread-4K-qd8", "read-64K-qd64", "randwrite-4K-qd8", "write-64K-qd64"]
_RANDOM_READ, _READ, _RANDOM_WRITE, _WRITE = PATTERNS = get_args(PatternName)
PhaseName = Literal["no-cache", "first", "repeated"]
NO_CACHE, FIRST, REPEATED = get_args(PhaseName)
_CLASS = "hdd"
_WITHIN = 0.9

DESIGN = StudyDesign(
    name="vm-fleet",
    title="A cache over hard disks under a fleet of virtual machines",
    phases=get_args(PhaseName),
    expectations=(
        Expectation(pattern=_RANDOM_READ, phase=REPEATED, ratio_min=8),
        Expectation(pattern=_READ, phase=REPEATED, ratio_min=5),
        Expectation(pattern=_RANDOM_WRITE, phase=REPEATED, ratio_min=_WITHIN),
        Expectation(pattern=_WRITE, phase=REPEATED, ratio_min=_WITHIN),
    ),
    caveats=(
        (
            "osd_caches_off",
            (
                "The OSDs keep no data that was read in memory (bluestore_default_buffered_read is off). They start "
                "again before each phase, so reads come from the disk or from the cache."
            ),
        ),
        (
            "warmed",
            "Before the repeated phase everything that it reads was read once in full while the disks took no time.",
        ),
        (
            "cache_ssd",
            (
                "The SSD of each cache is a file on this machine's own disk, as quick as that. A part of each cache, "
                "at most 2 % of its size, is in DRAM."
            ),
        ),
    ),
)


class Parameters(Model):
    """What can be set."""

    osds: int = Field(default=3, ge=1, le=8, description="OSDs, each on a simulated hard disk")
    replicas: int = Field(default=2, ge=1, le=3, description="copies of each object")
    images: int = Field(default=8, ge=1, le=64, description="images, with one client each")
    part_size: Size = Field(default=64 << 20, description="part of an image that one access pattern has")
    cache_size: Size = Field(default=4 << 30, description="SSD of the cache of each OSD")
    patterns: Many[PatternName] = Field(default=PATTERNS, min_length=1, description="access patterns")
    phases: Many[PhaseName] = Field(default=get_args(PhaseName), min_length=1, description="phases")
    repeats: int = Field(default=1, ge=1, le=100, description="times that all phases are measured")
    precision: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="end the repeats of a pattern whose intervals are within this share; 0: none",
    )
    runtime: Seconds = Field(default=8.0, gt=0, description="measured time of each access pattern in each phase")
    ramp: Seconds = Field(default=1.0, description="time under load before it")

    @model_validator(mode="after")
    def _has_repeats(self) -> Parameters:
        if self.precision and self.repeats <= PRECISE_REPEATS_MIN:
            raise wrong(f"precision needs repeats={PRECISE_REPEATS_MIN + 1} or more", self.repeats)
        return self


def _lab(parameters: Parameters) -> LabSpec:
    return LabSpec(name="bathy-study", devices=(DeviceGroup(device_class=_CLASS, count=parameters.osds),))


def _plan(parameters: Parameters) -> Plan:
    unbuffered = {"bluestore_default_buffered_read": "false"}
    phases = (
        Phase(name=NO_CACHE, osd_options=unbuffered, restart=True),
        # To put a cache on is a restart.
        Phase(name=FIRST, osd_options=unbuffered, cache=parameters.cache_size, empty=True),
        Phase(name=REPEATED, osd_options=unbuffered, cache=parameters.cache_size, warm=True, restart=True),
    )
    patterns = [pattern for pattern in PATTERNS if pattern in parameters.patterns]
    objects = -(-len(patterns) * parameters.part_size // DEFAULT_OBJECT_BYTES)
    return Plan(
        name=DESIGN.name,
        description=DESIGN.title,
        layers=("rbd",),
        device_classes=(_CLASS,),
        patterns=tuple(PlanPattern.model_validate(read_pattern(pattern)) for pattern in patterns),
        axes=Axes(
            images=(parameters.images,),
            image_size=(objects * DEFAULT_OBJECT_BYTES,),
            working_set=(parameters.part_size,),
        ),
        apart=True,
        phases=tuple(phase for phase in phases if phase.name in parameters.phases),
        repeats=parameters.repeats,
        precision=parameters.precision or None,
        replicas=min(parameters.replicas, parameters.osds),
        ramp=parameters.ramp,
        runtime=parameters.runtime,
        # It runs on labs, where nobody else waits: only what hangs is stopped.
        limits=Limits(prolong=0, baseline=2.0, max_client_latency=60.0, max_slow_ops=10_000),
        capture=Capture(sample_interval=min(1.0, parameters.runtime / 8)),
    )


STUDY = Study(
    design=DESIGN,
    help="A cache over hard disks under virtual machines: without it, with it for the first time, and repeated.",
    parameters=Parameters,
    plan=_plan,
    lab=_lab,
)
