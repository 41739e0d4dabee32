"""One more finding is one more file, and an output waits only for what it needs."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bathyscope import views
from bathyscope.errors import UsageError
from bathyscope.views import as_text, findings, pictures

VIEWS = Path(views.__file__).parent
# Views get findings and return text or bytes: what would let them ask the world is not theirs to import.
FORBIDDEN = {
    "asyncio", "http", "multiprocessing", "os", "pathlib", "requests", "shutil", "socket", "ssl", "subprocess",
    "tempfile", "threading", "time", "urllib", "webbrowser",
}  # fmt: skip
ALLOWED_OF_OURS = {"chart_library", "errors", "records", "units", "views", "__version__"}


@dataclasses.dataclass(frozen=True, slots=True)
class TideFinding:
    """A finding that no module of the product knows."""

    NAME: ClassVar[str] = "tide"

    height_m: float


SAID = """
from bathyscope.records.blocks import Column, HeatMap, Section, Table, Text

def sections(finding):
    columns = (Column("port", "port"), Column("height_m", "height in m"))
    table = Table("tides", "tides", columns, (("Brest", finding.height_m),))
    heat = HeatMap("ports", "Tides of ports", "port", "1/s", ("Brest",), 0, 10**9, ((1.0, 2.0),))
    yield Section("tide", "Tide", (Text(f"the tide is {finding.height_m} m high", "strong"), table, heat))
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the place of the file that says what a TideFinding is, in a directory of its own."""
    monkeypatch.setattr(findings, "__path__", [*findings.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    yield tmp_path / "tide.py"
    sys.modules.pop(f"{findings.__name__}.tide", None)


def test_a_new_finding_is_one_file(file: Path) -> None:
    file.write_text(SAID)
    finding = TideFinding(1.5)
    assert as_text(finding, "table").splitlines()[0] == "the tide is 1.5 m high"
    assert as_text(finding, "table").splitlines()[-1].split() == ["Brest", "1.5"]
    assert as_text(finding, "csv") == as_text(finding, "csv", table="tides") == "port,height_m\nBrest,1.5\n"
    assert '"height_m": 1.5' in as_text(finding, "json")
    page = as_text(finding, "html")
    assert "<h1>the tide is 1.5 m high</h1>" in page
    assert '<th scope="row">Brest</th>' in page
    assert 'data-chart="heat-ports"' in page
    assert [name for name, _ in pictures.draw(finding, "svg")] == ["001-heat-ports.svg"]


def test_a_verdict_is_a_block_that_outputs_show_with_its_evidence_and_what_to_do(file: Path) -> None:
    file.write_text(
        "from bathyscope.records.blocks import Section\n"
        "from bathyscope.records.figure import Figure\n"
        "from bathyscope.records.finding import Evidence, Verdict\n"
        "def sections(finding):\n"
        "    evidence = (Evidence('moon', Figure(0.5, 'ratio')),)\n"
        "    yield Section('tide', 'Tide', (Verdict('moon', 'The moon is the limit.', evidence, next_step='Wait.'),))\n"
    )
    said = ["→ The moon is the limit.", "  next: Wait.", "  evidence: moon 50 %"]
    assert as_text(TideFinding(1.5), "table").splitlines() == said
    page = as_text(TideFinding(1.5), "html")
    for shown in ("<h1>The moon is the limit.</h1>", "<b>Next:</b> Wait.", "<span>moon</span> <b>50 %</b>"):
        assert shown in page
    assert page.count("The moon is the limit.") == 1


def test_an_output_that_a_finding_lacks_is_an_error_with_a_hint() -> None:
    with pytest.raises(UsageError, match="tide cannot be shown as csv") as caught:
        as_text(TideFinding(1.5), "csv")
    assert caught.value.hint


def test_a_broken_file_is_not_a_missing_one(file: Path) -> None:
    file.write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        as_text(TideFinding(1.5), "csv")


def test_a_table_waits_for_no_chart_library() -> None:
    program = (
        "import sys; from bathyscope import views; views.render([{'a': 1}], 'table'); "
        "print(sorted({'altair', 'jinja2', 'vl_convert', 'markupsafe'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("file", sorted(VIEWS.rglob("*.py")), ids=lambda file: str(file.relative_to(VIEWS)))
def test_views_ask_the_world_nothing(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, rest = name.partition(".")
            if first == "bathyscope":
                assert rest.split(".")[0] in ALLOWED_OF_OURS, name
            # A terminal's colours are a matter of the environment.
            assert first not in FORBIDDEN or name == "os.environ", name
