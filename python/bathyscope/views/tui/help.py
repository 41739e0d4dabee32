"""The help of the live screen: its keys, and what the columns and remarks of the view mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from bathyscope.records.activity_finding import ActivityFinding
from bathyscope.views import labels


class Help(ModalScreen[None]):
    """A page over the screen; any of the keys that leave things leaves it."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help > VerticalScroll { width: 90%; height: 90%; border: round $primary; background: $surface; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,backspace,enter", "dismiss", "Close")]

    def __init__(
        self, keys: Sequence[tuple[str, str]], finding: ActivityFinding | None, remarks: Sequence[str]
    ) -> None:
        super().__init__()
        self._keys, self._finding, self._remarks = keys, finding, remarks

    def compose(self) -> ComposeResult:
        """Lay out the page."""
        with VerticalScroll():
            yield Static(self.words, markup=False)

    @property
    def words(self) -> Text:
        """The whole page."""
        lines = Text("Keys\n", style="bold")
        for key, meaning in self._keys:
            lines.append(f"  {key:<14} {meaning}\n", style="not bold")
        if self._finding is not None and self._finding.tables:
            lines.append("\nColumns\n")
            for column in self._finding.tables[0].columns:
                lines.append(f"  {column.heading:<14} {column.help}\n", style="not bold")
        if self._remarks:
            lines.append("\nRemarks\n")
            for remark in self._remarks:
                lines.append(f"  {labels.clean(remark)}\n", style="not bold")
        lines.append("\nesc leaves this page", style="not bold")
        return lines
