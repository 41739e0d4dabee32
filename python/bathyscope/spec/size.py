"""The sizing question: what `bathy size` is asked, validated once; and the passes over the trace that answer it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bathyscope import files
from bathyscope.errors import UsageError
from bathyscope.spec import limits, values
from bathyscope.spec.prices import Backing, Drive, Prices, load_prices
from bathyscope.spec.target import Model
from bathyscope.units import format_line_size, format_size_short

By = Literal["all", "image", "osd", "pool", "node"]

MOST_THREADS = 1024
LEAST_SAMPLES = 1024
"""Lines of the smallest sample that `bathy size` takes; `bathyscope.mrc` takes any."""
MOST_SAMPLES = 1 << 48
MOST_OBJECT_BYTES = 1 << 32
"""Objects of an RBD image are smaller: `rbd create --object-size` takes up to 32 MiB."""
MOST_OSDS = 1_000_000
UNIT_BYTES = 4096
"""What is valid or not together in a cache of bathyd."""

LineBytes = Annotated[int, values.power_of_two(limits.MIN_LINE_BYTES, limits.MAX_LINE_BYTES)]
Policy = Annotated[str, values.one_of(limits.policy_names)]
TraceFormat = Annotated[str, values.one_of(limits.trace_formats)]
Threads = Annotated[int, values.whole_number(1, MOST_THREADS)]
Salt = Annotated[int, values.whole_number(0, 2**64 - 1)]
Size = Annotated[int, BeforeValidator(values.size_bytes)]
Flag = Annotated[bool, BeforeValidator(values.flag)]
Latency = Annotated[float, BeforeValidator(values.latency_ns)]
Osd = Annotated[int, values.whole_number(0, MOST_OSDS)]
LineSizes = Annotated[
    tuple[LineBytes, ...], BeforeValidator(values.listed), AfterValidator(lambda v: tuple(sorted({*v})))
]
Policies = Annotated[
    tuple[Policy, ...], BeforeValidator(values.listed), AfterValidator(lambda v: tuple(dict.fromkeys(v)))
]

BYPASS_BYTES = 1 << 20
WRITE_BYPASS_BYTES = 256 << 10
"""The length of runs that `bypass` and `write-bypass` let in when they name none."""
ADMISSION_OF_BATHYD = "write-bypass"
"""What may enter a cache of bathyd whose configuration says nothing of it."""
_ADMISSION_HINT = "all, 2-hit, 3-hit, budget:50G, bypass, bypass:4M, write-bypass"


class Admission(Model):
    """What may enter the cache; without any part, everything. `name` goes into the records.

    Of `is_stream_of_writes` only writes make a stream that goes past the cache.
    """

    name: str = "all"
    n_hit: Annotated[int, values.whole_number(2, 255)] | None = None
    stream_cutoff_bytes: Size | None = None
    is_stream_of_writes: Flag = False
    write_budget_bytes_per_day: Size | None = None

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: Any) -> Any:
        return _parsed_admission(value) if isinstance(value, str) else value

    @classmethod
    def of(cls, name: str) -> Admission:
        """Return what "all", "2-hit", "budget:50G" (a day), "[write-]bypass[:1M]" or several with + stand for."""
        return cls.model_validate(name)


def _parsed_admission(text: str) -> dict[str, Any]:
    admission: dict[str, Any] = {"name": text.strip()}
    for part in text.split("+"):
        name, _, value = part.strip().partition(":")
        if name == "all" and not value:
            continue
        if (match := re.fullmatch(r"([0-9]{1,3})-hit", name)) and not value and 2 <= int(match[1]) <= 255:
            admission["n_hit"] = int(match[1])
        elif name == "budget" and value:
            admission["write_budget_bytes_per_day"] = value
        elif name in ("bypass", "write-bypass") and "stream_cutoff_bytes" not in admission:
            is_of_writes = name == "write-bypass"
            default_bytes = WRITE_BYPASS_BYTES if is_of_writes else BYPASS_BYTES
            admission |= {"stream_cutoff_bytes": value or default_bytes, "is_stream_of_writes": is_of_writes}
        else:
            raise values.wrong("must be made of known filters", part, hint=_ADMISSION_HINT)
    return admission


def _option(name: str, default: Any = ..., **kwargs: Any) -> Any:
    """Declare a field that is an option of the verb, whose name its errors have."""
    return Field(default, title=name, validate_default=False, **kwargs)


class SizeSpec(Model):
    """What `bathy size` is asked: the trace, the caches to simulate, and what the answer is judged by.

    `nodes` are the OSDs of each node. `fetch_bytes` None means whole lines, which are valid or not as a whole. With
    `break_even_bytes`, those that the disk transfers in the time of an access, the fetch size is adaptive.
    `memory_bytes` is what the cache may take, which bounds its small queue; None is what bathyd takes by default.
    `samples` None decides by the size of the trace, `window_s` None chooses, `min_life_years` None means the warranty,
    `flash` None any drive in `prices`. `vary` names what the advice may choose otherwise than given. A latency is text,
    "120us", "trace" or RUN:STEPKEY, and is looked up by the verb, like the disk of a run that `backing` names. At most
    one target is set.
    """

    traces: tuple[str, ...] = ()
    trace_format: TraceFormat | None = _option("--format", None)
    by: By = _option("--by", "all")
    nodes: dict[str, tuple[Osd, ...]] | None = _option("--nodes", None)
    skip_bad_records: Flag = _option("--skip-bad-records", default=False)
    object_bytes: Annotated[int, values.power_of_two(4096, MOST_OBJECT_BYTES)] | None = _option("--object-size", None)
    line_bytes: LineSizes = _option("--line", (4096, 16_384, 65_536, 262_144))
    fetch_bytes: Size | None = _option("--fetch", None)
    break_even_bytes: int | None = _option("--fetch", None)
    policies: Policies = _option("--policy", ("s3-fifo",))
    admission: Admission = _option("--admission", Admission())
    memory_bytes: Size | None = _option("--memory", None)
    on_write: Literal["allocate", "update", "invalidate"] = _option("--on-write", "allocate")
    exact: Flag = _option("--exact", default=False)
    samples: Annotated[int, values.whole_number(LEAST_SAMPLES, MOST_SAMPLES)] | None = _option("--samples", None)
    window_s: Annotated[float, BeforeValidator(values.seconds)] | None = _option("--windows", None)
    threads: Threads = _option("--threads", 1)
    salt: Salt = _option("--salt", 0)
    target_hit: Annotated[float, BeforeValidator(values.ratio)] | None = _option("--target-hit", None)
    target_latency_ns: Latency | None = _option("--target-latency", None)
    budget_bytes: Size | None = _option("--budget", None)
    hit_latency: str | None = _option("--hit-latency", None)
    miss_latency: str | None = _option("--miss-latency", None)
    drive_writes_per_day: Annotated[float, values.number()] | None = _option("--dwpd", None)
    total_bytes_written: Annotated[int, BeforeValidator(values.decimal_bytes)] | None = _option("--tbw", None)
    min_life_years: Annotated[float, BeforeValidator(values.years)] | None = _option("--min-life", None)
    vary: tuple[Literal["fetch", "policy", "admission"], ...] = ()
    prices: Prices = _option("--prices", default_factory=lambda: load_prices(None))
    flash: str | None = _option("--flash", None)
    backing: str = _option("--backing", "hdd")

    @field_validator("fetch_bytes")
    @classmethod
    def _fetch_fits(cls, unit: int | None, info: ValidationInfo) -> int | None:
        for line in info.data.get("line_bytes", ()):
            if unit is None:
                break
            least = max(limits.MIN_LINE_BYTES, line // limits.MAX_FETCH_UNITS)
            if unit & (unit - 1) or not least <= unit <= line:
                bounds = f"from {format_size_short(least)} to {format_size_short(line)}"
                raise values.wrong(f"must be a power of two {bounds} for {format_line_size(line)} lines", unit)
        return unit

    @field_validator("flash")
    @classmethod
    def _flash_is_priced(cls, name: str | None, info: ValidationInfo) -> str | None:
        drives = info.data["prices"].drives if "prices" in info.data else {}
        if name is not None and name not in drives:
            raise values.wrong("is not in the price file", name, hint="one of: " + ", ".join(drives))
        return name

    @model_validator(mode="after")
    def _options_fit(self) -> SizeSpec:
        if sum(target is not None for target in (self.target_hit, self.target_latency_ns, self.budget_bytes)) > 1:
            raise values.wrong(
                "--target-hit, --target-latency and --budget exclude each other", hint="give one of them"
            )
        if self.drive_writes_per_day is not None and self.total_bytes_written is not None:
            raise values.wrong("--dwpd and --tbw exclude each other", hint="give what the data sheet promises")
        if self.exact and self.samples is not None:
            raise values.wrong("--exact and --samples exclude each other")
        return self

    def unit_bytes(self, line_bytes: int, fetch_bytes: int) -> int:
        """What is valid or not together: the line by default, else at most a unit of bathyd, if the line allows it."""
        if self.fetch_bytes is None and fetch_bytes == line_bytes:
            return line_bytes
        return min(fetch_bytes, max(UNIT_BYTES, line_bytes // limits.MAX_FETCH_UNITS))

    @property
    def drives(self) -> dict[str, Drive]:
        """The drives that may be advised, with the endurance that was given."""
        drives = self.prices.drives if self.flash is None else {self.flash: self.prices.drives[self.flash]}
        if self.drive_writes_per_day is None and self.total_bytes_written is None:
            return drives
        tb_written = None if self.total_bytes_written is None else self.total_bytes_written / 1e12
        given = {"drive_writes_per_day": self.drive_writes_per_day, "total_tb_written": tb_written}
        return {name: drive.model_copy(update=given) for name, drive in drives.items()}

    @property
    def backing_profile(self) -> Backing | None:
        """The profile of the backing disk; None when `backing` names a run that measured one."""
        return self.prices.backing.get(self.backing)


def load_nodes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the OSD numbers of each node from a YAML file like `node-a: [0, osd.1]`. Raises UsageError."""
    hint = "YAML, a line for each node: 'node-a: [0, 1, 2]'"
    try:
        content: Any = YAML(typ="safe", pure=True).load(files.read_bounded(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"nodes file {path} cannot be read: {error}") from error
    except YAMLError as error:
        raise UsageError(f"{path} is not YAML", hint=hint) from error
    if not isinstance(content, dict) or not content or not all(isinstance(osds, list) for osds in content.values()):
        raise UsageError(f"{path} does not map nodes to lists of OSDs", hint=hint)
    return {str(name): tuple(_osd_number(osd, path) for osd in osds) for name, osds in content.items()}


def _osd_number(value: object, path: Path) -> int:
    text = str(value).removeprefix("osd.")
    if not text.isdecimal() or int(text) > MOST_OSDS:
        raise UsageError(f"{path}: '{value}' is not an OSD", hint="0 or osd.0")
    return int(text)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class CurveKey:
    """Which curve: of which group, with which line size and policy."""

    group_kind: str
    group_name: str
    line_bytes: int
    policy: str


@dataclasses.dataclass(frozen=True, slots=True)
class WantedSizes:
    """Cache sizes in bytes at which a curve shall be simulated, and how; no fetch size is that of the spec."""

    curve: CurveKey
    sizes_bytes: tuple[int, ...]
    admission: Admission
    fetch_bytes: int | None = None


PassName = Literal["grid", "options", "target", "detail", "peak"]


@dataclasses.dataclass(frozen=True, slots=True)
class Pass:
    """One pass over a trace: every curve at the sizes of its grid, or the `wanted` sizes alone.

    The pass "peak" counts minutes in place of the windows of the others. `round_index` counts passes of the same name.
    """

    name: PassName
    wanted: tuple[WantedSizes, ...] = ()
    round_index: int = 0


GRID = Pass("grid")
"""The first pass of a simulation: all groups, line sizes and policies, with the windows of time."""
