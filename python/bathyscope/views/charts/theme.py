"""Colours and type of the charts, in light, in dark, and as CSS variables of the page that holds them.

The layer and stage colours follow Okabe and Ito's palette ("Color Universal Design", 2008), which people
with any of the common colour-vision deficiencies can tell apart; the tones are shifted for contrast of at
least 3:1 against the background. Colour is never the only sign: layers also differ in shape and dash.
Which layer has which slot is the layer's own trait (`records.finding.LayerView`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import altair as alt

from bathyscope.records.finding import LayerView

FONT = "Inter, 'Segoe UI', system-ui, -apple-system, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@dataclasses.dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one surface. `layers` and `stages` are slots; `stage_text` is readable on the stage of its slot."""

    name: str
    background: str
    text: str
    muted: str
    grid: str
    layers: tuple[str, ...]
    stages: tuple[str, ...]
    stage_text: tuple[str, ...]
    refused: str

    def layer_scale(self, layers: Sequence[LayerView], *, by_name: bool = False) -> alt.Scale:
        """Return a colour for each layer's title or name; the same layer has the same colour in every chart."""
        names = [view.name if by_name else view.title for view in layers]
        return alt.Scale(domain=names, range=[self.layers[view.slot % len(self.layers)] for view in layers])

    def config(self) -> dict[str, Any]:
        """Return the Vega-Lite configuration."""
        axis = {
            "labelColor": self.muted,
            "titleColor": self.muted,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": self.grid,
            "domainColor": self.grid,
            "tickColor": self.grid,
            "domain": False,
            "labelFlush": False,
        }
        legend = {"labelColor": self.text, "titleColor": self.muted, "labelFontSize": 11, "symbolStrokeWidth": 2}
        return {
            "background": self.background,
            "font": FONT,
            "view": {"stroke": None},
            "axis": axis,
            "legend": legend | {"orient": "top", "title": None, "labelLimit": 170, "offset": 6},
            "title": {"color": self.text, "subtitleColor": self.muted, "anchor": "start", "fontSize": 14, "offset": 10},
            "text": {"color": self.text},
            "header": {"labelColor": self.text, "labelFontSize": 12, "title": None, "labelAnchor": "start"},
        }


LIGHT = Theme(
    "light",
    "#ffffff",
    "#17212b",
    "#5a6875",
    "#e3e8ec",
    ("#46535f", "#0072b2", "#c4530a", "#00805c", "#a8447f", "#8a6a00", "#5b4bb0"),
    ("#e0a100", "#8794a0", "#0072b2", "#c4530a", "#56a8d8", "#00805c", "#5b4bb0", "#a8447f"),
    ("#1b1300", "#10161b", "#ffffff", "#ffffff", "#06141d", "#ffffff", "#ffffff", "#ffffff"),
    "#b3261e",
)
DARK = Theme(
    "dark",
    "#111a22",
    "#e6edf3",
    "#9aa9b6",
    "#25323d",
    ("#b4c2ce", "#5bb4ec", "#f58a4b", "#35c99b", "#e594c4", "#e2bd3f", "#a99af0"),
    ("#e8b830", "#8b99a6", "#3f9bd8", "#ef7f3e", "#8ccbf0", "#35c99b", "#a99af0", "#e594c4"),
    ("#1b1300", "#0b1116", "#03121d", "#1d0c02", "#06141d", "#03170f", "#0d0820", "#1d0612"),
    "#ff8a80",
)
# The page sets these variables for light, dark and print; a drawn chart follows without being drawn again.
PAGE = Theme(
    "page",
    "transparent",
    "var(--text)",
    "var(--muted)",
    "var(--grid)",
    tuple(f"var(--layer-{i})" for i in range(len(LIGHT.layers))),
    tuple(f"var(--stage-{i})" for i in range(len(LIGHT.stages))),
    tuple(f"var(--stage-text-{i})" for i in range(len(LIGHT.stages))),
    "var(--refused)",
)


def css_variables(theme: Theme) -> str:
    """Return the declarations that give PAGE's variables the colours of `theme`."""
    pairs = [("text", theme.text), ("muted", theme.muted), ("grid", theme.grid), ("refused", theme.refused)]
    pairs += [(f"layer-{i}", colour) for i, colour in enumerate(theme.layers)]
    pairs += [(f"stage-{i}", colour) for i, colour in enumerate(theme.stages)]
    pairs += [(f"stage-text-{i}", colour) for i, colour in enumerate(theme.stage_text)]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)
