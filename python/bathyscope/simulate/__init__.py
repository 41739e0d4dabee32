"""Miss-ratio curves and cache simulation: the only user of the compiled passes. It makes rows and concludes nothing."""

from __future__ import annotations

from bathyscope.simulate.passes import Workload, profile, run

__all__ = ["Workload", "profile", "run"]
