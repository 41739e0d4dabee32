"""A plan of `bathy cache plan --output json`, read again: what `bathy cache source create --from-plan` needs of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bathyscope import files
from bathyscope.errors import UsageError
from bathyscope.spec.cache import DEFAULT_LINE_BYTES, POLICIES, CacheSettings
from bathyscope.spec.size import ADMISSION_OF_BATHYD
from bathyscope.units import format_line_size

_HINT = "make it by `bathy cache plan RUN --flash 400G --output json`"


class _Part(BaseModel):
    # The rest of the finding is for people.
    model_config = ConfigDict(frozen=True, extra="ignore")


class PlannedSource(_Part):
    """A directory to cache and its share of the SSD."""

    name: str
    osd: Annotated[int, Field(ge=0)]
    directory: str
    flash_bytes: Annotated[int, Field(gt=0)]


class PlannedNode(_Part):
    """The sources of one node."""

    node: str
    sources: tuple[PlannedSource, ...]


class CachePlanFile(_Part):
    """A plan, with the lines, policy, admission and write mode that were simulated. The fetch size is adaptive."""

    line_bytes: int = DEFAULT_LINE_BYTES
    policy: str = POLICIES[0]
    admission: str = ADMISSION_OF_BATHYD
    mode: str
    caches: tuple[PlannedNode, ...]

    @property
    def words(self) -> str:
        """Return how the simulated cache works."""
        return f"{format_line_size(self.line_bytes)} lines, {self.policy}, {self.admission}, adaptive fetch"

    @property
    def settings(self) -> CacheSettings:
        """Return the same as settings. Raises UsageError."""
        lines = {"line_bytes": self.line_bytes}
        return CacheSettings.of(lines | {"policy": self.policy, "admission": self.admission})

    def sources_of(self, node: str | None) -> tuple[PlannedSource, ...]:
        """Return the sources of a node, of the only one when `node` is None. Raises UsageError."""
        names = [cache.node for cache in self.caches]
        if node is None and len(names) != 1:
            raise UsageError(f"the plan is for {len(names)} nodes", hint="--node NAME: " + ", ".join(names))
        caches = [cache for cache in self.caches if node in (None, cache.node)]
        if not caches:
            raise UsageError(f"the plan has no node '{node}'", hint="it has: " + ", ".join(names))
        if not caches[0].sources:
            hint = "none of its OSDs is worth a cache by this plan; `bathy cache plan` with more --flash may differ"
            raise UsageError(f"the plan has no sources for the node '{caches[0].node}'", hint=hint)
        return caches[0].sources


def load_cache_plan(path: Path) -> CachePlanFile:
    """Return the plan in a file. Raises UsageError."""
    try:
        return CachePlanFile.model_validate_json(files.read_bounded(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}", hint=_HINT) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its content"
        raise UsageError(f"{path} is not a cache plan: {where}: {first['msg']}", hint=_HINT) from error
