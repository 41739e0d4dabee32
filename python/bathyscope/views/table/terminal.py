"""Where a table is printed: colour or not, how wide, and text that cannot steer the terminal."""

from __future__ import annotations

import re
import textwrap
from os import environ
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bathyscope.views import Options
from bathyscope.views.labels import clean

PLAIN_WIDTH = 80
_LINE_LENGTH_MIN = 20


def console(stream: TextIO, options: Options) -> Console:
    """Return a console on `stream`. A dumb terminal has no colour."""
    terminal = bool(getattr(stream, "isatty", lambda: False)())
    colour, width = options.colour, options.width
    if colour is None:
        colour = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
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


def new_table() -> Table:
    """Return a table without columns, ruled below its headings only."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")


def text(value: str, style: str = "") -> Text:
    """Return a line of text without control characters and without markup."""
    return Text(clean(value), style=style)


def print_wrapped(lead: str, sentence: str, out: Console, width: int, style: str = "") -> None:
    """Print a sentence after `lead`, over as many lines as it takes, each as far to the right as the first.

    A lead that would take more than half of the width, or leave too little of it, is a part of the sentence.
    """
    if 2 * len(lead) > width or width - 1 - len(lead) < _LINE_LENGTH_MIN:
        lead, sentence = "", lead + sentence
    # A number stays with its unit: no line begins with "%" or "ms". A name with hyphens is a word: it may be copied.
    kept = re.sub(r"(?<=\d) (?=[%µa-zA-Z]{1,3}\b|%)", "\N{NO-BREAK SPACE}", clean(sentence))
    wrapped = textwrap.wrap(kept, max(_LINE_LENGTH_MIN, width - 1 - len(lead)), break_on_hyphens=False) or [""]
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in wrapped]
    for index, line in enumerate(lines):
        out.print(Text((lead if index == 0 else " " * len(lead)) + line, style=style), soft_wrap=True)
