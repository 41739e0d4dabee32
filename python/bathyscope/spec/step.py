"""One step: one point of a plan's matrix, in one repeat."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bathyscope.spec.target import Model
from bathyscope.units import format_size_short

DEFAULT_OBJECT_BYTES = 4 << 20
DEFAULT_WORKING_SET_BYTES = 1 << 30

Op = Literal["randread", "randwrite", "read", "write", "randrw"]
Temperature = Literal["any", "cold", "warm"]


class Pattern(Model):
    """How the load touches the data."""

    op: Op
    block_size_bytes: int = Field(gt=0)
    queue_depth: int = Field(gt=0, le=65536)
    read_percent: int = Field(default=100, ge=0, le=100, description="for randrw only")

    @property
    def name(self) -> str:
        """The pattern's short name: randread-4K-qd16."""
        mix = f"{self.read_percent}" if self.op == "randrw" else ""
        return f"{self.op}{mix}-{format_size_short(self.block_size_bytes)}-qd{self.queue_depth}"

    @property
    def reads(self) -> bool:
        """Whether the load reads."""
        return self.op in ("randread", "read", "randrw")

    @property
    def writes(self) -> bool:
        """Whether the load writes."""
        return self.op in ("randwrite", "write", "randrw")


class StepSpec(Model):
    """What one step runs. Equal `key` means the same configuration in another repeat or another run."""

    layer: str
    load_generator: str = "fio"
    device_class: str = ""
    pattern: Pattern
    jobs: int = Field(default=1, gt=0, description="load processes; images where the layer has them")
    image_size_bytes: int | None = None
    object_size_bytes: int | None = None
    working_set_bytes: int | None = None
    offset_bytes: int = Field(default=0, ge=0, description="where the working set begins in an image")
    temperature: Temperature = "any"
    io_count_limit: int | None = Field(default=None, gt=0, description="stop after this many I/Os in each job")
    rate_iops: int | None = Field(default=None, gt=0)
    ramp_s: float = Field(ge=0)
    runtime_s: float = Field(gt=0)
    repeat_index: int = Field(default=0, ge=0)
    variant: str = Field(
        default="", description="names what differs from other configurations of the plan with the same pattern: img2G"
    )
    phase: str = Field(default="", description="phase of the plan; a plan without phases has one without a name")

    @property
    def key(self) -> str:
        """Stable name of the configuration without the repeat: rbd/ssd/randread-4K-qd16.

        What differs from the default is appended (`-j4`, `-obj1M`, `-img2G`, `@rados_bench`), so that two
        configurations of one plan never share a key.
        """
        parts = [self.pattern.name]
        if self.jobs != 1:
            parts.append(f"j{self.jobs}")
        if self.object_size_bytes is not None and self.object_size_bytes != DEFAULT_OBJECT_BYTES:
            parts.append(f"obj{format_size_short(self.object_size_bytes)}")
        if self.rate_iops is not None:
            parts.append(f"rate{self.rate_iops}")
        if self.temperature != "any":
            parts.append(self.temperature)
        parts += [part for part in (self.variant, self.phase) if part]
        suffix = "" if self.load_generator == "fio" else f"@{self.load_generator}"
        return f"{self.layer}/{self.device_class or 'all'}/{'-'.join(parts)}{suffix}"
