"""A chart and its rows, apart: a page keeps one specification for many charts; a picture joins the two."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import altair as alt
from altair.utils import schemapi

from bathyscope.views.charts.theme import Theme

# Vega-Lite's version as vl-convert names it.
VL_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
ROWS = "rows"
PICTURE_WIDTH = 640

# Expressions of Vega's own language: 1500000 → "1.5 ms", 14200 → "14.2k", 1 - 10^-3 → "99.9 %".
LATENCY_LABEL = (
    "datum.value == 0 ? '0' : datum.value >= 1e9 ? format(datum.value/1e9,'~g')+' s'"
    " : datum.value >= 1e6 ? format(datum.value/1e6,'~g')+' ms'"
    " : datum.value >= 1e3 ? format(datum.value/1e3,'~g')+' µs' : format(datum.value,'~g')+' ns'"
)
RATE_LABEL = "datum.value >= 1 ? format(datum.value,'~s') : format(datum.value,'~g')"
BANDWIDTH_LABEL = (
    "datum.value >= 1073741824 ? format(datum.value/1073741824,'.3~g')+' GiB/s' : datum.value >= 1048576 ? "
    "format(datum.value/1048576,'.3~g')+' MiB/s' : format(datum.value/1024,'.3~g')+' KiB/s'"
)
PERCENT_LABEL = "format(datum.value,'.0%')"
PLAIN_LABEL = "format(datum.value,'~g')"
BYTES_LABEL = (
    "datum.value >= 1099511627776 ? format(datum.value/1099511627776,'.3~g')+' TiB'"
    " : datum.value >= 1073741824 ? format(datum.value/1073741824,'.3~g')+' GiB'"
    " : datum.value >= 1048576 ? format(datum.value/1048576,'.3~g')+' MiB'"
    " : datum.value >= 1024 ? format(datum.value/1024,'.3~g')+' KiB' : format(datum.value,'d')+' B'"
)
LABELS = {
    "ns": LATENCY_LABEL,
    "count": RATE_LABEL,
    "1/s": RATE_LABEL,
    "bytes": BYTES_LABEL,
    "bytes/s": BANDWIDTH_LABEL,
    "ratio": PERCENT_LABEL,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Drawing:
    """A chart: `chart` makes it, and it reads the named data "rows", which are `rows`.

    `title` and `description` are for people. The chart is made when its specification is asked for: those of one
    `template_name` have the same on a page, so that one of a thousand steps needs one for all of them.
    """

    name: str
    title: str
    description: str
    chart: Callable[[], Any]
    rows: tuple[dict[str, Any], ...]
    template_name: str = ""

    def template(self, theme: Theme) -> dict[str, Any]:
        """Return the specification without data and title, as wide as the page's column."""
        spec = self._spec(theme, width="container")
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
        return spec

    def picture(self, theme: Theme) -> dict[str, Any]:
        """Return the complete specification with data and title, in a fixed width."""
        spec = self._spec(theme, width=PICTURE_WIDTH, title=self.title, description=self.description)
        spec["datasets"] = {ROWS: list(self.rows)}
        spec["padding"] = 16
        return spec

    def _spec(self, theme: Theme, **properties: Any) -> dict[str, Any]:
        # Only the rows and names come from a run. Altair would hold each part of each chart against its schema, which
        # takes most of the time of a page; a test does so for every kind of chart.
        with schemapi.debug_mode(arg=False):
            chart = self.chart().properties(**properties).configure(**theme.config())
            spec: dict[str, Any] = chart.to_dict(validate=False)
        return spec


def named_rows() -> alt.NamedData:
    """Return the reference to the rows that are supplied later."""
    return alt.NamedData(name=ROWS)
