"""How a cache of bathyd works, apart from its SSD and its directories."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from bathyscope.spec import values
from bathyscope.spec.size import Admission
from bathyscope.spec.target import Model

_ADAPTIVE = "adaptive"


def _fetch(value: Any) -> Any:
    if value == _ADAPTIVE:
        return value
    try:
        return values.size_bytes(value)
    except PydanticCustomError:
        raise values.wrong(f"must be {_ADAPTIVE} or a size", value, hint=f"{_ADAPTIVE}, or 4K to 64K") from None


class CacheSettings(Model):
    """Which lines stay, what a miss fetches, and what may enter. What is not given is as bathyd has it.

    bathyd checks which policies it runs and which sizes fit a line.
    """

    policy: str | None = Field(None, title="--policy")
    fetch: Annotated[Literal["adaptive"] | int, BeforeValidator(_fetch)] | None = Field(None, title="--fetch")
    admission: Admission | None = Field(None, title="--admission")

    def document(self) -> dict[str, Any]:
        """Return what the configuration says of them."""
        return self.model_dump(exclude_none=True, exclude={"admission": {"name"}})
