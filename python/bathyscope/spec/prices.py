"""Prices and endurance of flash: a small YAML file that an operator edits to the offer at hand."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from bathyscope.errors import UsageError
from bathyscope.spec.target import Model


class FlashPrice(Model):
    """One kind of flash drive."""

    price_per_gib: float = Field(
        ge=0, allow_inf_nan=False, description="in the file's currency, per GiB of usable capacity"
    )
    drive_writes_per_day: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    warranty_years: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    total_bytes_written: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    read_latency_us: float = Field(
        gt=0, allow_inf_nan=False, description="mean 4 KiB read at low queue depth, cache software included"
    )


class Prices(Model):
    """A price file: currency, the day it was written, and flash drives by name."""

    currency: str
    as_of: str
    note: str = ""
    flash: dict[str, FlashPrice] = Field(min_length=1)


def load_prices(path: str | None) -> Prices:
    """Return the prices of a YAML file, or the packaged ones. Raises UsageError with the key that is wrong."""
    if path is None:
        name, text = "the packaged prices", resources.files("bathyscope.spec").joinpath("prices.yaml").read_text()
    else:
        name = path
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"price file {path} cannot be read: {error}") from error
    try:
        content: Any = YAML(typ="safe", pure=True).load(text)
        return Prices.model_validate(content)
    except YAMLError as error:
        raise UsageError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(
            f"{name}: {where}: {first['msg']}", hint="`bathy size --show-prices` prints a file to start from"
        ) from error
