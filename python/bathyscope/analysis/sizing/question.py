"""The sizing question with all that its answer may rest on beside the curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from bathyscope.analysis.sizing.latency import LatencyDistribution
from bathyscope.records.size import TraceSummary
from bathyscope.spec.prices import Backing, load_prices
from bathyscope.spec.size import SizeSpec


@dataclasses.dataclass(frozen=True, slots=True)
class SizeQuestion:
    """What was asked, what the trace is, and the read latencies of flash (`hit`) and of the backing device (`miss`).

    Without either latency no latency is expected. `disk` is the backing disk where a run measured it.
    """

    spec: SizeSpec
    trace: TraceSummary
    hit: LatencyDistribution | None = None
    miss: LatencyDistribution | None = None
    disk: Backing | None = None

    @property
    def backing(self) -> Backing:
        """The disk behind the cache: the measured one, else that of the profile."""
        return self.disk or self.spec.backing_profile or load_prices(None).backing["hdd"]

    def as_context(self) -> dict[str, Any]:
        """Return what a stored run keeps beside the spec and the curves, as JSON values."""
        latencies = {"hit": self.hit, "miss": self.miss}
        disk = None if self.disk is None else self.disk.model_dump()
        return {"trace": dataclasses.asdict(self.trace), "disk": disk} | {
            name: None if latency is None else latency.as_plain() for name, latency in latencies.items()
        }

    @classmethod
    def of_context(cls, spec_text: str, context: Mapping[str, Any]) -> SizeQuestion:
        """Return the question of a stored run: its spec as JSON, and the context of its segment."""
        trace: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in context["trace"].items()}
        latencies = (context.get("hit"), context.get("miss"))
        hit, miss = (None if latency is None else LatencyDistribution.of_plain(latency) for latency in latencies)
        disk = None if context.get("disk") is None else Backing.model_validate(context["disk"])
        return cls(SizeSpec.model_validate_json(spec_text), TraceSummary(**trace), hit, miss, disk)
