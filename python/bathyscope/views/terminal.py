"""Where a table is printed: colour or not, how wide, and text that cannot steer the terminal."""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console
from rich.text import Text

from bathyscope.views.labels import clean

PLAIN_WIDTH = 80


def console(stream: TextIO, *, colour: bool | None, width: int | None) -> Console:
    """Return a console on `stream`.

    `colour` None means: if the stream is a terminal, NO_COLOR is not set and TERM is not dumb. `width` None
    means the terminal's width, and 80 where there is no terminal.
    """
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    if colour is None:
        colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    if width is None and not terminal:
        width = PLAIN_WIDTH
    return Console(
        file=stream,
        force_terminal=colour,
        no_color=not colour,
        color_system="auto" if colour and terminal else ("standard" if colour else None),
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )


def text(value: str, style: str = "") -> Text:
    """Return a line of text without control characters and without markup."""
    return Text(clean(value), style=style)
