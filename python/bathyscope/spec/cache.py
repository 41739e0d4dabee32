"""How a cache of bathyd works, apart from its SSD and its directories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from bathyscope.spec import values
from bathyscope.spec.size import ADMISSION_OF_BATHYD, UNIT_BYTES, Admission
from bathyscope.spec.target import Model
from bathyscope.units import format_line_size

POLICIES = ["s3-fifo", "clock2q+", "lru"]
"""Those of the policies that are simulated that bathyd runs."""
LINE_SIZES = (16 << 10, 64 << 10, 256 << 10)
"""The line sizes that a cache of bathyd is made with."""
DEFAULT_LINE_BYTES = 64 << 10
Mode = Literal["write-through", "write-around", "read-only", "pass-through"]
"""What of a source's reads and writes enters the cache: see bathyd's README."""
DEFAULT_MODE: Mode = "write-through"

_block: Any = values.power_of_two(UNIT_BYTES, max(LINE_SIZES)).func


def _fetch(value: Any) -> Any:
    # What is written like no size may have been meant as a word.
    if isinstance(value, str) and not value[:1].isdigit() and value != "adaptive":
        raise values.wrong(
            "must be adaptive or a size", value, hint="--fetch adaptive suits most; or 4K, 16K, 64K, 256K"
        )
    return value if value == "adaptive" else _block(value)


Fetch = Annotated[int | Literal["adaptive"], BeforeValidator(_fetch)]


def _line(value: Any) -> int:
    size = values.size_bytes(value)
    if size not in LINE_SIZES:
        sizes = ", ".join(map(format_line_size, LINE_SIZES))
        raise values.wrong(
            f"must be one of {sizes}", value, hint="--line-size 64K suits most; `bathy size` compares them"
        )
    return size


Line = Annotated[int, BeforeValidator(_line)]


class CacheSettings(Model):
    """The lines, which of them stay, what a miss fetches, what may enter. What is not given is as bathyd has it."""

    line_bytes: Line | None = Field(None, title="--line-size")
    policy: Annotated[str, values.one_of(lambda: POLICIES)] | None = Field(None, title="--policy")
    fetch: Fetch | None = Field(None, title="--fetch")
    admission: Admission | None = Field(None, title="--admission")

    @field_validator("fetch")
    @classmethod
    def _fetch_fits(cls, fetch: int | str | None, info: ValidationInfo) -> int | str | None:
        line_bytes = info.data.get("line_bytes") or DEFAULT_LINE_BYTES
        if isinstance(fetch, int) and fetch > line_bytes:
            raise values.wrong(
                f"must be at most {format_line_size(line_bytes)}, the size of a line",
                fetch,
                hint="make it smaller, or leave it out: it is adaptive then",
            )
        return fetch

    def document(self) -> dict[str, Any]:
        """Return what the configuration says of them."""
        return self.model_dump(exclude_none=True, exclude={"admission": {"name"}})

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CacheSettings:
        """Return those of the part `cache` of a configuration; where it says nothing, bathyd's. Raises UsageError."""
        given = {name: document[name] for name in cls.model_fields if name in document}
        defaults = {
            "line_bytes": DEFAULT_LINE_BYTES,
            "policy": POLICIES[0],
            "fetch": "adaptive",
            "admission": ADMISSION_OF_BATHYD,
        }
        return values.checked(cls, **defaults | given)

    def differences(self, other: CacheSettings) -> list[str]:
        """Return the options in which the two differ."""
        fields = type(self).model_fields
        return [str(field.title) for name, field in fields.items() if self._compared(name) != other._compared(name)]

    def _compared(self, name: str) -> Any:
        value = getattr(self, name)
        # The name of an admission is how somebody wrote it.
        return value.model_copy(update={"name": ""}) if isinstance(value, Admission) else value
