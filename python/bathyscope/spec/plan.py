"""A plan: what a benchmark runs, as a frozen value that a YAML file or a preset describes.

`expand` turns a plan into the ordered list of its steps. It is pure and deterministic, so a dry run, a run
and a resumed run see the same steps in the same order: that is what makes a step's index its identity.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from bathyscope.errors import BathyscopeError, PlanError
from bathyscope.spec.layer import LayerTraits
from bathyscope.spec.step import (
    DEFAULT_OBJECT_BYTES,
    DEFAULT_WORKING_SET_BYTES,
    Op,
    Pattern,
    StepSpec,
    Temperature,
)
from bathyscope.spec.target import Model
from bathyscope.units import format_size_short, parse_bytes, parse_seconds

EACH_CLASS = "each"
ALL_OSDS = "all"
UNKNOWN_NAME = "unknown_name"

_PATTERN_NAME = re.compile(r"^([a-z]+?)(\d{1,3})?[-\s]+([0-9.]+[kKmMgG]?)[-\s]+qd(\d+)$")


def _text(parse: Callable[[str], float]) -> BeforeValidator:
    """Let people write 4K or 10s; leave what is no text to pydantic's own message."""

    def read(value: object) -> object:
        try:
            return parse(value) if isinstance(value, str) else value
        except BathyscopeError as error:
            raise ValueError(error.message) from error

    return BeforeValidator(read)


def _unknown(message: str, given: str, valid: Iterable[str]) -> PydanticCustomError:
    """Return the error of a name that does not exist, with the names that do: the reader sees the nearest."""
    context = {"message": message, "given": given, "valid": tuple(valid)}
    return PydanticCustomError(UNKNOWN_NAME, "{message}", context)


def read_pattern(value: object) -> object:
    """Accept a pattern's own name (randread-4K-qd16) or a mapping with the plan's key names."""
    if isinstance(value, str):
        match = _PATTERN_NAME.match(value.strip())
        if match is None:
            raise ValueError(f"'{value}' is not a pattern; write one as randread-4K-qd16")
        if match[1] not in get_args(Op):
            raise _unknown(f"'{value}' is not a pattern: there is no op '{match[1]}'", match[1], get_args(Op))
        pattern: dict[str, Any] = {"op": match[1], "block_size": match[3], "queue_depth": int(match[4])}
        if match[2]:
            pattern["read_percent"] = int(match[2])
        return pattern
    return value


T = TypeVar("T")
Many = Annotated[tuple[T, ...], BeforeValidator(lambda value: value if isinstance(value, list | tuple) else [value])]
"""A list, of which one value stands for a list of one."""

# docs/reference/plan.md prints the units, descriptions, limits and examples of the fields.
Size = Annotated[int, _text(parse_bytes), Field(gt=0, json_schema_extra={"unit": "bytes"})]
Seconds = Annotated[float, _text(parse_seconds), Field(ge=0, json_schema_extra={"unit": "seconds"})]
Depth = Annotated[int, Field(gt=0, le=65536)]
Share = Annotated[float, Field(gt=0, lt=1, json_schema_extra={"unit": "ratio"})]
Percent = Annotated[int, Field(ge=0, le=100, json_schema_extra={"unit": "%"})]


class PlanPattern(Model):
    """One access pattern in the words of a plan file."""

    op: Op = Field(description="direction and order of the I/Os", examples=["randrw"])
    block_size: Size = Field(description="size of each I/O", examples=["4K"])
    queue_depth: Depth = Field(description="I/Os in flight, in each load process", examples=[16])
    read_percent: Percent = Field(default=70, description="share of reads; for randrw only")


class Axes(Model):
    """The axes of the matrix; every axis takes one value or a list of them."""

    op: Many[Op] = Field(default=(), description="as in a pattern; instead of `patterns`", examples=[["randread"]])
    block_size: Many[Size] = Field(default=(), description="as in a pattern; needs `op`", examples=[["4K", "64K"]])
    queue_depth: Many[Depth] = Field(default=(), description="as in a pattern; needs `op`", examples=[[1, 16, 64]])
    read_percent: Many[Percent] = Field(default=(70,), min_length=1, description="share of reads; for randrw only")
    jobs: Many[Annotated[int, Field(gt=0, le=1024)]] = Field(
        default=(1,), min_length=1, description="load processes side by side, on RBD each with an image of its own"
    )
    images: Many[Annotated[int, Field(gt=0, le=1024)]] = Field(
        default=(), description="images, with one load process each; not given: as many as `jobs`", examples=[4]
    )
    image_size: Many[Size] = Field(default=(DEFAULT_WORKING_SET_BYTES,), min_length=1, description="size of each image")
    object_size: Many[Size] = Field(
        default=(DEFAULT_OBJECT_BYTES,), min_length=1, description="size of the RADOS objects, of an image's too"
    )
    working_set: Many[Size] = Field(
        default=(),
        examples=["256M"],
        description="what a load touches; not given: all of an image, as much of RADOS, 1G of a disk",
    )
    rate_iops: Many[Annotated[int, Field(gt=0, json_schema_extra={"unit": "1/s"})]] = Field(
        default=(), description="rate of each load process; not given: as fast as it can", examples=[200]
    )
    temperature: Many[Temperature] = Field(
        default=("any",),
        min_length=1,
        description="cold: caches are dropped before a step, which is refused when they answer; warm: they may answer",
    )


class Limits(Model):
    """What stops a load, and how far an unsteady step may be prolonged."""

    prolong: int = Field(default=2, ge=0, le=20, description="times that an unsteady step is run on")
    max_client_latency: Seconds = Field(
        default=10.0, description="stop when an OSD's mean commit latency, all clients together, exceeds this"
    )
    max_tenant_wait: Seconds = Field(
        default=0.05,
        description="stop when another pool's operations in flight have waited longer than this on average, and also "
        "longer than max_tenant_wait_factor times what they waited before the load",
    )
    max_tenant_wait_factor: float = Field(
        default=5.0, ge=1, description="see max_tenant_wait", json_schema_extra={"unit": "ratio"}
    )
    max_tenant_share: float = Field(
        default=1.0,
        gt=0,
        description="refuse a step during which other pools did more I/O than this share of ours",
        json_schema_extra={"unit": "ratio"},
    )
    baseline: Seconds = Field(default=10.0, description="how long the cluster is watched before the first load")
    max_slow_ops: int = Field(default=0, ge=0, description="slow operations (SLOW_OPS) beyond those at the start")
    max_fullness: float = Field(
        default=0.8,
        gt=0,
        le=0.95,
        description="of any OSD under test, prefill included",
        json_schema_extra={"unit": "ratio"},
    )


class Capture(Model):
    """What is recorded around each step, besides what the load generator reports."""

    perf_counters: bool = Field(default=True, description="what the OSDs count, before and after each step")
    op_history: bool = Field(default=True, description="where the time of single operations went; for OSD stages")
    op_history_ops: int = Field(
        default=1000, ge=20, le=100_000, description="operations kept per OSD; of more than 3 OSDs fewer each"
    )
    processes: bool = Field(default=True, description="processor time of daemons and clients, and device counters")
    sample_interval: Seconds = Field(default=1.0, gt=0, description="between two samples of processes and devices")


class Quiesce(Model):
    """What is switched off while the run lasts, and restored exactly afterwards."""

    scrub: bool = Field(default=False, description="the flags noscrub and nodeep-scrub are set")
    balancer: bool = Field(default=False, description="the balancer is off")


def _plain_text(value: object) -> object:
    """Let people write the value of an option as YAML has it: false, 16."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


PRECISE_REPEATS_MIN = 3
"""Fewer repeats that agree by chance would end too early."""


class Phase(Model):
    """A state of the cluster in which every configuration is measured: what is done before it, in this order.

    All of it is undone when another phase does not want it, and when the run ends.
    """

    name: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,39}$", description="name of the phase, at the end of step keys", examples=["cached"]
    )
    osd_options: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,99}$")], Annotated[str, BeforeValidator(_plain_text)]
    ] = Field(
        default_factory=dict,
        description="options of all OSDs, in the cluster's configuration; on labs the OSDs start again when they "
        "change; elsewhere those that cannot be changed while an OSD runs are refused",
        examples=[{"bluestore_default_buffered_read": False}],
    )
    cache: Size | None = Field(
        default=None,
        description="size of the cache that each OSD under test gets, with `empty`, `warm` or both; on labs",
        examples=["4G"],
    )
    empty: bool = Field(default=False, description="the caches begin with nothing in them")
    warm: bool = Field(
        default=False, description="all that the phase reads is read once in full; on labs while disks take no time"
    )
    restart: bool = Field(default=False, description="the OSDs under test start again; on labs")

    @model_validator(mode="after")
    def _has_known_caches(self) -> Phase:
        if self.empty and self.cache is None:
            raise ValueError("'empty' needs 'cache'")
        if self.cache is not None and not (self.empty or self.warm):
            raise ValueError(
                "'cache' needs 'empty' or 'warm': else what the caches hold depends on the order of phases, and on "
                "whether the run was resumed"
            )
        return self


class Plan(Model):
    """What a benchmark runs. Either `patterns` or `axes.op` says which patterns."""

    name: str = Field(
        min_length=1, max_length=80, description="name of the plan, in every result", examples=["nightly"]
    )
    description: str = Field(default="", description="one line for people", examples=["4K writes on the new SSDs"])
    layers: Many[str] = Field(default=("disk", "rados", "rbd"), description="layers to measure")
    load_generators: dict[str, Many[str]] = Field(
        default_factory=dict,
        description="load generators of a layer, in place of its first: a second one checks the figures of the first",
        examples=[{"rados": ["fio", "rados_bench"]}],
    )
    device_classes: Many[str] = Field(
        default=(EACH_CLASS,), description="device classes; each: one after the other, all: all OSDs together"
    )
    patterns: tuple[Annotated[PlanPattern, BeforeValidator(read_pattern)], ...] = Field(
        default=(),
        description="access patterns, by name or by the keys below; instead of the axes op, block_size, queue_depth",
        examples=[["randread-4K-qd16", "randrw70-8K-qd4"]],
    )
    axes: Axes = Field(default=Axes(), description="axes of the matrix, see below")
    repeats: int = Field(default=5, gt=0, le=1000, description="times that every configuration is measured")
    precision: Share | None = Field(
        default=None,
        description="a configuration whose 95 % interval of IOPS is within this share of their median, in each phase, "
        "is not measured again; `repeats` are then the most",
        examples=[0.05],
    )
    ramp: Seconds = Field(default=2.0, description="time under load before the measured window, in each step")
    runtime: Annotated[Seconds, Field(gt=0)] = Field(default=10.0, description="measured time of a step")
    io_count: int | None = Field(
        default=None, gt=0, description="stop each job after this many I/Os; there is no ramp then", examples=[100000]
    )
    order: Literal["interleaved", "shuffled"] = Field(
        default="interleaved", description="each round of repeats in the plan's order, or in a random one, phases too"
    )
    seed: int = Field(default=1, ge=0, description="of the random order")
    phases: tuple[Phase, ...] = Field(
        default=(),
        description="states of the cluster in which every configuration is measured in turn, see below",
        examples=[[{"name": "bare"}, {"name": "cached", "cache": "4G", "empty": True}]],
    )
    apart: bool = Field(
        default=False,
        description="each access pattern has a working set of its own in each image, so none finds cached what "
        "another has read",
    )
    replicas: int | None = Field(
        default=None, gt=0, le=10, description="copies in our pools; not given: the cluster's default", examples=[2]
    )
    prefill: bool = Field(default=True, description="write images, objects and disks in full before they are read")
    client_cache: bool = Field(
        default=False, description="librbd's cache; with it a write is done before an OSD has it"
    )
    limits: Limits = Field(default=Limits(), description="what stops a load, see below")
    capture: Capture = Field(default=Capture(), description="what is recorded, see below")
    quiesce: Quiesce = Field(default=Quiesce(), description="what is switched off meanwhile, see below")

    @field_validator("layers", "load_generators")
    @classmethod
    def _known_layers(cls, value: Any, info: ValidationInfo) -> Any:
        known: Mapping[str, LayerTraits] | None = (info.context or {}).get("layers")
        if known is None:
            return value
        for layer in value:
            if layer not in known:
                raise _unknown(f"there is no layer '{layer}'", layer, known)
            valid = known[layer].load_generators
            for generator in value[layer] if isinstance(value, Mapping) else ():
                if generator not in valid:
                    raise _unknown(f"the {layer} layer has no load generator '{generator}'", generator, valid)
        return value

    @model_validator(mode="after")
    def _has_patterns(self) -> Plan:
        if not self.layers:
            raise ValueError("a plan needs at least one layer")
        if not self.patterns and not self.axes.op:
            raise ValueError("a plan needs 'patterns' or 'axes.op'")
        if self.patterns and (self.axes.op or self.axes.block_size or self.axes.queue_depth):
            raise ValueError("give 'patterns' or the axes op, block_size and queue_depth, not both")
        if not self.patterns and not (self.axes.block_size and self.axes.queue_depth):
            raise ValueError("the matrix needs the axes op, block_size and queue_depth")
        if self.apart and not self.axes.working_set:
            raise ValueError("'apart' needs the axis working_set")
        if len({phase.name for phase in self.phases}) < len(self.phases):
            raise ValueError("two phases have the same name")
        if self.precision is not None and self.repeats <= PRECISE_REPEATS_MIN:
            raise ValueError(f"'precision' needs at least {PRECISE_REPEATS_MIN + 1} repeats (got {self.repeats})")
        return self

    def pattern_values(self) -> tuple[Pattern, ...]:
        """Return the access patterns in plan order, each once."""
        axes = self.axes
        matrix = itertools.product(axes.op, axes.block_size, axes.queue_depth, axes.read_percent)
        listed = ((p.op, p.block_size, p.queue_depth, p.read_percent) for p in self.patterns)
        patterns = (
            Pattern(op=op, block_size_bytes=size, queue_depth=depth, read_percent=mix if op == "randrw" else 100)
            for op, size, depth, mix in (listed if self.patterns else matrix)
        )
        return tuple(dict.fromkeys(patterns))


def resolve_classes(plan: Plan, available: Sequence[str]) -> tuple[str, ...]:
    """Return the device classes to measure: `each` stands for all of `available`, `all` for no class ("").

    Raises PlanError when the plan names a class that the target lacks.
    """
    classes: list[str] = []
    for name in plan.device_classes:
        if name == EACH_CLASS:
            classes.extend(available or ("",))
        elif name in (ALL_OSDS, ""):
            classes.append("")
        elif available and name not in available:
            raise PlanError(
                f"the target has no device class '{name}'",
                hint=f"it has: {', '.join(available)}; or write '{EACH_CLASS}'",
                key="device_classes",
            )
        else:
            classes.append(name)
    return tuple(dict.fromkeys(classes))


def _variant(axes: Axes, image_size: int | None, working_set: int | None) -> str:
    """Return what the key must say of sizes: only those that the plan varies, so that keys stay short."""
    parts = []
    if len(axes.image_size) > 1 and image_size is not None:
        parts.append(f"img{format_size_short(image_size)}")
    if len(axes.working_set) > 1 and working_set is not None:
        parts.append(f"ws{format_size_short(working_set)}")
    return "-".join(parts)


def configurations(plan: Plan, available_classes: Sequence[str], layers: Mapping[str, LayerTraits]) -> list[StepSpec]:
    """Return every configuration of the plan once, as steps of repeat 0.

    Patterns are the outer loop, then layers, then device classes, so that what is compared (the layers of one
    pattern) runs close together, and each class of devices rests while the other one works.

    Raises PlanError when two configurations would have the same key.
    """
    axes = plan.axes
    classes = resolve_classes(plan, available_classes)
    extras = itertools.product(
        axes.jobs,
        axes.images or (None,),
        axes.image_size,
        axes.object_size,
        axes.working_set or (None,),
        axes.rate_iops or (None,),
        axes.temperature,
    )
    steps: dict[str, StepSpec] = {}
    for extra, (position, pattern), layer in itertools.product(
        list(extras), list(enumerate(plan.pattern_values())), plan.layers
    ):
        jobs, images, image_size, object_size, working_set, rate, temperature = extra
        traits = layers[layer]
        own_axes = traits.axes
        like_image = traits.working_set_is_image and working_set is None
        generators = plan.load_generators.get(layer, traits.load_generators[:1])
        for load_generator, device_class in itertools.product(generators, classes):
            step = StepSpec(
                layer=layer,
                load_generator=load_generator,
                device_class=device_class,
                pattern=pattern,
                jobs=images if images is not None and "images" in own_axes else jobs,
                image_size_bytes=image_size if "image_size" in own_axes else None,
                object_size_bytes=object_size if "object_size" in own_axes else None,
                working_set_bytes=image_size if like_image else working_set,
                offset_bytes=position * (working_set or 0) if plan.apart and "images" in own_axes else 0,
                temperature=temperature if "temperature" in own_axes else "any",
                io_count_limit=plan.io_count,
                rate_iops=rate,
                ramp_s=plan.ramp,
                runtime_s=plan.runtime,
                variant=_variant(axes, image_size if like_image or "image_size" in own_axes else None, working_set),
            )
            other = steps.setdefault(step.key, step)
            if other != step:
                raise PlanError(
                    f"two configurations of the plan have the same key {step.key}",
                    hint="they differ in an axis that is not part of the key; split the plan in two",
                )
    return list(steps.values())


def expand(plan: Plan, available_classes: Sequence[str], layers: Mapping[str, LayerTraits]) -> list[StepSpec]:
    """Return all steps of the plan in the order in which they run. `layers` holds the traits of every layer by name.

    Raises PlanError when two steps of a repeat would have the same key.

    Repeats are interleaved: one round runs every configuration once, so that a drift of the cluster spreads
    over all configurations instead of biasing the last ones. Phases are blocks within a round, because what leads
    from one to the next is costly. `order: shuffled` also permutes each round, with the plan's seed.
    """
    base = configurations(plan, available_classes, layers)
    generator = random.Random(plan.seed)  # noqa: S311 - an order of steps, not a secret
    steps: list[StepSpec] = []
    names = [phase.name for phase in plan.phases] or [""]
    blocks = {phase: [step.model_copy(update={"phase": phase}) for step in base] for phase in names}
    keys: set[str] = set()
    for phase, step in ((phase, step) for phase, block in blocks.items() for step in block):
        if step.key in keys:
            raise PlanError(
                f"a step of the phase '{phase}' has the same key as another one: {step.key}",
                hint="give the phase another name",
                key="phases",
            )
        keys.add(step.key)
    for repeat in range(plan.repeats):
        phases = list(names)
        if plan.order == "shuffled":
            generator.shuffle(phases)
        for phase in phases:
            order = list(blocks[phase])
            if plan.order == "shuffled":
                generator.shuffle(order)
            steps.extend(step.model_copy(update={"repeat_index": repeat}) for step in order)
    return steps
