"""How a cache of bathyd works, apart from its SSD and its directories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from bathyscope.spec import values
from bathyscope.spec.size import ADMISSION_OF_BATHYD, UNIT_BYTES, Admission
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

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> CacheSettings:
        """Return those of the part `cache` of a configuration; where it says nothing, bathyd's. Raises UsageError."""
        given = {name: document[name] for name in cls.model_fields if name in document}
        own = {"policy": POLICIES[0], "fetch": "adaptive", "admission": ADMISSION_OF_BATHYD}
        return values.checked(cls, **own | given)

    def differences(self, other: CacheSettings) -> list[str]:
        """Return the options in which the two differ."""
        fields = type(self).model_fields
        return [str(field.title) for name, field in fields.items() if self._compared(name) != other._compared(name)]

    def _compared(self, name: str) -> Any:
        value = getattr(self, name)
        # The name of an admission is how somebody wrote it.
        return value.model_copy(update={"name": ""}) if isinstance(value, Admission) else value
