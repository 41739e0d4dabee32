"""Whatever writes findings can write this one: `views.render` gives what the verb's own view gives."""

from __future__ import annotations

import csv
import io
import json

import pytest

from bathyscope.analysis.sizing import SizeQuestion, build
from bathyscope.errors import UsageError
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size_finding import SizeFinding
from bathyscope.sources.block_trace import TraceFiles
from bathyscope.sources.curve_points import curve_points
from bathyscope.sources.curve_request import CurveRequest
from bathyscope.views import render
from bathyscope.views import size as view

from .test_curve_points import TRACES


@pytest.fixture(scope="module")
def finding() -> SizeFinding:
    rows, report = curve_points(TraceFiles([TRACES / "multi3.lirs"]), CurveRequest(line_bytes=(4096,)))
    return build(to_table(CurvePoint, rows), SizeQuestion(("t",), report.events, 0, report.duration_s, "all"))


@pytest.mark.parametrize("output", ["table", "json", "csv"])
@pytest.mark.parametrize("width", [44, 80])
def test_render_is_the_view_of_the_verb(finding: SizeFinding, output: str, width: int) -> None:
    rendered, own = io.StringIO(), io.StringIO()
    render(finding, output, rendered, width=width)
    view.write(finding, output, own, width=width)
    assert rendered.getvalue() == own.getvalue()
    if output == "json":
        assert json.loads(rendered.getvalue())["finding"] == "SizeFinding"
    elif output == "csv":
        assert len(list(csv.DictReader(io.StringIO(rendered.getvalue())))) == len(finding.curves[0].points)
    else:
        assert finding.advice.sentence in " ".join(rendered.getvalue().split())


def test_an_output_that_cannot_be_is_named(finding: SizeFinding) -> None:
    with pytest.raises(UsageError, match="'yaml' is not an output"):
        render(finding, "yaml", io.StringIO())
