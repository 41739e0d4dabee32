"""A plan: what a benchmark runs, as a frozen value that a YAML file or a preset describes.

`expand` turns a plan into the ordered list of its steps. It is pure and deterministic, so a dry run, a run
and a resumed run see the same steps in the same order: that is what makes a step's index its identity.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from bathyscope.errors import BathyscopeError, PlanError
from bathyscope.spec.step import Op, Pattern, StepSpec, Temperature
from bathyscope.spec.target import Model
from bathyscope.units import format_size_short, parse_bytes, parse_seconds

EACH_CLASS = "each"
ALL_OSDS = "all"
DEFAULT_IMAGE_BYTES = 1 << 30
DEFAULT_OBJECT_BYTES = 4 << 20

_PATTERN_NAME = re.compile(r"^([a-z]+?)(\d{1,3})?[-\s]+([0-9.]+[kKmMgG]?)[-\s]+qd(\d+)$")


def _size(value: object) -> object:
    """Let people write 4K; leave what is no size to pydantic's own message."""
    if isinstance(value, str):
        try:
            return parse_bytes(value)
        except BathyscopeError as error:
            raise ValueError(error.message) from error
    return value


def _seconds(value: object) -> object:
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except BathyscopeError as error:
            raise ValueError(error.message) from error
    return value


def _listed(value: object) -> object:
    """One value stands for a list of one."""
    return value if isinstance(value, list | tuple) else [value]


def read_pattern(value: object) -> object:
    """Accept a pattern's own name (randread-4K-qd16) or a mapping with the plan's key names."""
    if isinstance(value, str):
        match = _PATTERN_NAME.match(value.strip())
        if match is None:
            raise ValueError(f"'{value}' is not a pattern; write one as randread-4K-qd16")
        if match[1] not in get_args(Op):
            # What follows the first bar is what was given, then what is valid; the reader is told the nearest.
            raise ValueError(
                f"'{value}' is not a pattern: there is no op '{match[1]}'|{match[1]}|{','.join(get_args(Op))}"
            )
        pattern: dict[str, Any] = {"op": match[1], "block_size": match[3], "queue_depth": int(match[4])}
        if match[2]:
            pattern["read_percent"] = int(match[2])
        return pattern
    return value


Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]


class PlanPattern(Model):
    """One access pattern in the words of a plan file."""

    op: Op
    block_size: Size
    queue_depth: int = Field(gt=0, le=65536)
    read_percent: int = Field(default=70, ge=0, le=100, description="share of reads; for randrw only")


class Axes(Model):
    """The axes of the matrix; every axis takes one value or a list. An axis that is not given has its default."""

    op: Annotated[tuple[Op, ...], BeforeValidator(_listed)] = ()
    block_size: Annotated[tuple[Size, ...], BeforeValidator(_listed)] = ()
    queue_depth: Annotated[tuple[Annotated[int, Field(gt=0, le=65536)], ...], BeforeValidator(_listed)] = ()
    read_percent: Annotated[tuple[Annotated[int, Field(ge=0, le=100)], ...], BeforeValidator(_listed)] = ()
    jobs: Annotated[tuple[Annotated[int, Field(gt=0, le=1024)], ...], BeforeValidator(_listed)] = ()
    images: Annotated[tuple[Annotated[int, Field(gt=0, le=1024)], ...], BeforeValidator(_listed)] = ()
    image_size: Annotated[tuple[Size, ...], BeforeValidator(_listed)] = ()
    object_size: Annotated[tuple[Size, ...], BeforeValidator(_listed)] = ()
    working_set: Annotated[tuple[Size, ...], BeforeValidator(_listed)] = ()
    rate_iops: Annotated[tuple[Annotated[int, Field(gt=0)], ...], BeforeValidator(_listed)] = ()
    temperature: Annotated[tuple[Temperature, ...], BeforeValidator(_listed)] = ()


class Limits(Model):
    """What stops a load, and how far an unsteady step may be prolonged."""

    prolong: int = Field(default=2, ge=0, le=20, description="times that an unsteady step is run on")
    max_client_latency: Seconds = Field(
        default=10.0, description="stop when an OSD's mean commit latency, all clients together, exceeds this"
    )
    max_slow_ops: int = Field(default=0, ge=0, description="slow operations (SLOW_OPS) beyond those at the start")
    max_fullness: float = Field(default=0.8, gt=0, le=0.95, description="of any OSD under test, prefill included")


class Capture(Model):
    """What is recorded around each step, besides what the load generator reports."""

    perf_counters: bool = True
    op_history: bool = True
    op_history_ops: int = Field(default=1000, ge=20, le=100_000, description="operations kept per OSD")
    processes: bool = Field(default=True, description="processor time of daemons and clients, and device counters")
    sample_interval: Seconds = Field(default=1.0, gt=0)
    environment: bool = True


class Quiesce(Model):
    """What is switched off while the run lasts, and restored exactly afterwards."""

    scrub: bool = False
    balancer: bool = False


class Plan(Model):
    """What a benchmark runs. Either `patterns` or `axes.op` says which patterns."""

    name: str = Field(min_length=1, max_length=80)
    description: str = ""
    layers: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ("disk", "rados", "rbd")
    witnesses: dict[str, Annotated[tuple[str, ...], BeforeValidator(_listed)]] = Field(default_factory=dict)
    device_classes: Annotated[tuple[str, ...], BeforeValidator(_listed)] = (EACH_CLASS,)
    patterns: tuple[Annotated[PlanPattern, BeforeValidator(read_pattern)], ...] = ()
    axes: Axes = Axes()
    repeats: int = Field(default=5, gt=0, le=1000)
    ramp: Seconds = 2.0
    runtime: Annotated[Seconds, Field(gt=0)] = 10.0
    io_count: int | None = Field(default=None, gt=0, description="stop each job after this many I/Os")
    order: Literal["interleaved", "shuffled"] = "interleaved"
    seed: int = Field(default=1, ge=0)
    replicas: int | None = Field(default=None, gt=0, le=10, description="of our pools; none: the cluster's default")
    prefill: bool = True
    client_cache: bool = Field(
        default=False, description="librbd's cache; with it a write is done before an OSD has it"
    )
    limits: Limits = Limits()
    capture: Capture = Capture()
    quiesce: Quiesce = Quiesce()

    @field_validator("layers", "witnesses")
    @classmethod
    def _known_layers(cls, value: Any, info: ValidationInfo) -> Any:
        known = (info.context or {}).get("layers")
        for layer in value:
            if known is not None and layer not in known:
                raise ValueError(f"there is no layer '{layer}'|{layer}|{','.join(known)}")
        return value

    @model_validator(mode="after")
    def _has_patterns(self) -> Plan:
        if not self.layers:
            raise ValueError("a plan needs at least one layer")
        if not self.patterns and not self.axes.op:
            raise ValueError("a plan needs 'patterns' or 'axes.op': what shall the load do?")
        if self.patterns and (self.axes.op or self.axes.block_size or self.axes.queue_depth):
            raise ValueError("give 'patterns' or the axes op, block_size and queue_depth, not both")
        if not self.patterns and not (self.axes.block_size and self.axes.queue_depth):
            raise ValueError("the matrix needs the axes op, block_size and queue_depth")
        return self

    def pattern_values(self) -> tuple[Pattern, ...]:
        """Return the access patterns in plan order, each once."""
        if self.patterns:
            found: Iterable[Pattern] = (
                Pattern(
                    op=p.op,
                    block_size_bytes=p.block_size,
                    queue_depth=p.queue_depth,
                    read_percent=p.read_percent if p.op == "randrw" else 100,
                )
                for p in self.patterns
            )
        else:
            mixes = self.axes.read_percent or (70,)
            found = (
                Pattern(op=op, block_size_bytes=size, queue_depth=depth, read_percent=mix if op == "randrw" else 100)
                for op, size, depth, mix in itertools.product(
                    self.axes.op, self.axes.block_size, self.axes.queue_depth, mixes
                )
            )
        return tuple(dict.fromkeys(found))


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


def configurations(plan: Plan, available_classes: Sequence[str]) -> list[StepSpec]:
    """Return every configuration of the plan once, as steps of repeat 0.

    Patterns are the outer loop, then layers, then device classes, so that what is compared (the layers of one
    pattern) runs close together, and each class of devices rests while the other one works.

    Raises PlanError when two configurations would have the same key.
    """
    axes = plan.axes
    classes = resolve_classes(plan, available_classes)
    extras = itertools.product(
        axes.jobs or (1,),
        axes.images or (None,),
        axes.image_size or (DEFAULT_IMAGE_BYTES,),
        axes.object_size or (DEFAULT_OBJECT_BYTES,),
        axes.working_set or (None,),
        axes.rate_iops or (None,),
        axes.temperature or ("any",),
    )
    found: dict[str, StepSpec] = {}
    for extra, pattern, layer in itertools.product(list(extras), plan.pattern_values(), plan.layers):
        jobs, images, image_size, object_size, working_set, rate, temperature = extra
        for witness, device_class in itertools.product(plan.witnesses.get(layer, ("fio",)), classes):
            step = StepSpec(
                layer=layer,
                witness=witness,
                device_class=device_class,
                pattern=pattern,
                jobs=images if images is not None and layer == "rbd" else jobs,
                image_size_bytes=image_size if layer == "rbd" else None,
                object_size_bytes=None if layer == "disk" else object_size,
                # RADOS objects are those of an image of the same size, so that the two rungs compare.
                working_set_bytes=image_size if layer == "rados" and working_set is None else working_set,
                temperature=temperature if layer != "disk" else "any",
                io_count_limit=plan.io_count,
                rate_iops=rate,
                ramp_s=plan.ramp,
                runtime_s=plan.runtime,
                variant=_variant(axes, image_size if layer == "rbd" else None, working_set),
            )
            other = found.setdefault(step.key, step)
            if other != step:
                raise PlanError(
                    f"two configurations of the plan have the same key {step.key}",
                    hint="they differ in an axis that is not part of the key; split the plan in two",
                )
    return list(found.values())


def expand(plan: Plan, available_classes: Sequence[str]) -> list[StepSpec]:
    """Return all steps of the plan in the order in which they run.

    Repeats are interleaved: one round runs every configuration once, so that a drift of the cluster spreads
    over all configurations instead of biasing the last ones. `order: shuffled` also permutes each round, with
    the plan's seed.
    """
    base = configurations(plan, available_classes)
    generator = random.Random(plan.seed)  # noqa: S311 - an order of steps, not a secret
    steps: list[StepSpec] = []
    for repeat in range(plan.repeats):
        order = list(base)
        if plan.order == "shuffled":
            generator.shuffle(order)
        steps.extend(step.model_copy(update={"repeat_index": repeat}) for step in order)
    return steps
