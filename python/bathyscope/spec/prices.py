"""Flash drives that can be bought, and the disks behind the cache: a YAML file that an operator edits to the offer."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bathyscope import files
from bathyscope.errors import UsageError
from bathyscope.spec.target import Model
from bathyscope.spec.values import usage_error

DAYS = 365.0
"""Of a year, as data sheets count them."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Drive(Model):
    """One drive with the figures of its data sheet, decimal as there, and its price in the file's currency.

    Without drive writes per day and total bytes written its life is not known. IOPS are of 4 KiB.
    """

    capacity_gb: Positive
    drive_writes_per_day: Positive | None = None
    total_tb_written: Positive | None = None
    warranty_years: Positive = 5.0
    read_iops: Positive
    write_iops: Positive
    read_mb_per_s: Positive
    write_mb_per_s: Positive
    read_latency_us: Positive = Field(description="mean 4 KiB read at low queue depth, cache software included")
    price: NotNegative
    source: str = ""

    @property
    def capacity_bytes(self) -> float:
        """Its capacity."""
        return self.capacity_gb * 1e9

    @property
    def endurance_bytes(self) -> float | None:
        """Bytes that may be written over its life; None when nothing is promised."""
        if self.total_tb_written is not None:
            return self.total_tb_written * 1e12
        if self.drive_writes_per_day is None:
            return None
        return self.drive_writes_per_day * self.capacity_bytes * DAYS * self.warranty_years


class Backing(Model):
    """A disk behind the cache: a read takes the positioning and then the transfer of its bytes."""

    positioning_ms: NotNegative
    transfer_mb_per_s: Positive
    source: str = ""

    def transfer_s(self, size_bytes: float) -> float:
        """Return how long the transfer of some bytes takes."""
        return size_bytes / (self.transfer_mb_per_s * 1e6)

    @property
    def break_even_bytes(self) -> int:
        """The bytes that it transfers in the time of one positioning: what an adaptive fetch size goes by."""
        return round(self.positioning_ms / 1e3 * self.transfer_mb_per_s * 1e6)

    def busy_s(self, accesses: float, size_bytes: float) -> float:
        """Return how long so many accesses keep one disk busy."""
        return accesses * self.positioning_ms / 1e3 + self.transfer_s(size_bytes)


class Prices(Model):
    """A price file: currency, the day it was written, drives and backing disks by name. `packaged`: prices estimated.

    A file without backing disks has the packaged ones.
    """

    currency: str
    as_of: str
    note: str = ""
    drives: dict[str, Drive] = Field(min_length=1)
    backing: dict[str, Backing] = Field(default_factory=lambda: load_prices(None).backing)
    packaged: bool = False


def packaged_prices() -> str:
    """Return the text of the packaged price file."""
    return resources.files("bathyscope.spec").joinpath("prices.yaml").read_text()


def load_prices(path: str | None) -> Prices:
    """Return the prices of a YAML file, or the packaged ones. Raises UsageError with the key that is wrong."""
    try:
        name = "the packaged prices" if path is None else path
        text = packaged_prices() if path is None else files.read_bounded(Path(path)).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"price file {path} cannot be read: {error}") from error
    try:
        content: Any = YAML(typ="safe", pure=True).load(text)
        return Prices.model_validate(content).model_copy(update={"packaged": path is None})
    except YAMLError as error:
        raise UsageError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        hint = "`bathy size --show-prices` prints a file to start from"
        raise usage_error(error, Prices, file=name, hint=hint) from error
