"""Names and limits that the compiled core sets: the one place where specs and findings take them from."""

from __future__ import annotations

from bathyscope import _core  # noqa: TID251 - constants, no algorithm

MIN_LINE_BYTES = _core.MIN_LINE_BYTES
MAX_LINE_BYTES = _core.MAX_LINE_BYTES
MAX_FETCH_UNITS = _core.MAX_FETCH_UNITS
MAX_CACHE_LINES = _core.MAX_CACHE_LINES
MIN_MINIATURE_LINES = _core.MIN_MINIATURE_LINES
STRATA_BITS = _core.STRATA_BITS
policy_names = _core.policy_names
trace_formats = _core.trace_formats
