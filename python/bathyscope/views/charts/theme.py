"""Colours and type of the charts, in light, in dark, and as CSS variables of the page that holds them.

The layer and stage colours follow Okabe and Ito's palette ("Color Universal Design", 2008), which people
with any of the common colour-vision deficiencies can tell apart; the tones are shifted for contrast of at
least 3:1 against the background. Colour is never the only sign: layers also differ in shape and dash.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

FONT = "Inter, 'Segoe UI', system-ui, -apple-system, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
SHAPES = {"disk": "square", "rados": "circle", "rbd": "triangle-up", "cephfs": "diamond", "rgw": "cross"}
DASHES: dict[str, list[int]] = {"disk": [1, 0], "rados": [7, 2], "rbd": [3, 2], "cephfs": [8, 2, 2, 2], "rgw": [1, 2]}
_LAYER_SLOTS = {"disk": 0, "rados": 1, "rbd": 2, "krbd": 5, "rbd_nbd": 6, "cephfs": 3, "rgw": 4, "omap": 5}
STAGES = ("queue", "prepare", "store", "replica_wait", "reply")


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

    def layer_range(self, names: Sequence[str]) -> list[str]:
        """Return a colour for each layer; the same layer has the same colour in every chart."""
        return [self.layers[layer_slot(name)] for name in names]

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


def layer_slot(name: str) -> int:
    """Return the slot of a layer's colour; layers that are not known share the last."""
    return _LAYER_SLOTS.get(name, 6)


LIGHT = Theme(
    "light",
    "#ffffff",
    "#17212b",
    "#5a6875",
    "#e3e8ec",
    ("#46535f", "#0072b2", "#c4530a", "#00805c", "#a8447f", "#8a6a00", "#5b4bb0"),
    ("#e0a100", "#8794a0", "#0072b2", "#c4530a", "#56a8d8"),
    ("#1b1300", "#10161b", "#ffffff", "#ffffff", "#06141d"),
    "#b3261e",
)
DARK = Theme(
    "dark",
    "#111a22",
    "#e6edf3",
    "#9aa9b6",
    "#25323d",
    ("#b4c2ce", "#5bb4ec", "#f58a4b", "#35c99b", "#e594c4", "#e2bd3f", "#a99af0"),
    ("#e8b830", "#8b99a6", "#3f9bd8", "#ef7f3e", "#8ccbf0"),
    ("#1b1300", "#0b1116", "#03121d", "#1d0c02", "#06141d"),
    "#ff8a80",
)
# The page sets these variables for light, dark and print; a drawn chart follows without being drawn again.
PAGE = Theme(
    "page",
    "transparent",
    "var(--text)",
    "var(--muted)",
    "var(--grid)",
    tuple(f"var(--layer-{i})" for i in range(7)),
    tuple(f"var(--stage-{i})" for i in range(5)),
    tuple(f"var(--stage-text-{i})" for i in range(5)),
    "var(--refused)",
)


def css_variables(theme: Theme) -> str:
    """Return the declarations that give PAGE's variables the colours of `theme`."""
    pairs = [("text", theme.text), ("muted", theme.muted), ("grid", theme.grid), ("refused", theme.refused)]
    pairs += [(f"layer-{i}", colour) for i, colour in enumerate(theme.layers)]
    pairs += [(f"stage-{i}", colour) for i, colour in enumerate(theme.stages)]
    pairs += [(f"stage-text-{i}", colour) for i, colour in enumerate(theme.stage_text)]
    return "".join(f"--{name}:{colour};" for name, colour in pairs)
