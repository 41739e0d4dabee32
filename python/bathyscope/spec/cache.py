"""How a cache of bathyd works, apart from its SSD and its directories."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bathyscope.spec import values
from bathyscope.spec.size import UNIT_BYTES, Admission
from bathyscope.spec.target import Model

POLICIES = ["s3-fifo", "clock2q+", "lru"]
"""Those of the policies that are simulated that bathyd runs."""
_LINE_BYTES = 64 << 10


Block = Annotated[int, values.power_of_two(UNIT_BYTES, _LINE_BYTES)]


class CacheSettings(Model):
    """Which lines stay, what a miss fetches, and what may enter. What is not given is as bathyd has it."""

    policy: Annotated[str, values.one_of(lambda: POLICIES)] | None = Field(None, title="--policy")
    fetch: Block | Literal["adaptive"] | None = Field(None, title="--fetch")
    admission: Admission | None = Field(None, title="--admission")

    def document(self) -> dict[str, Any]:
        """Return what the configuration says of them."""
        return self.model_dump(exclude_none=True, exclude={"admission": {"name"}})
