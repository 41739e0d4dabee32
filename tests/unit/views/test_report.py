from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.unit.analysis.builders import LAYERS, RunBuilder, ladder_loads, ladder_of

from bathyscope.records.figure import Figure
from bathyscope.records.finding import CommandView
from bathyscope.views import as_text
from bathyscope.views.html.frame import packed, with_commands

from . import samples
from .pages import in_a_browser, loaded, unpacked

NAMESPACES = re.compile(r"https?://(www\.w3\.org/|vega\.github\.io/(schema|editor)/|github\.com/vega/)")


class Reader(HTMLParser):
    """Collects elements with their attributes, and the text of scripts and of everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts and self.cdata_elem == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif self.lasttag != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def html() -> str:
    return samples.ladder_page()


@pytest.fixture(scope="module")
def reader(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def test_nothing_is_fetched(html: str, reader: Reader) -> None:
    for tag, attrs in reader.elements:
        for name in ("src", "srcset", "action", "poster", "data", "background"):
            assert name not in attrs, (tag, attrs)
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        if "href" in attrs:
            assert (attrs["href"] or "").startswith("#")
    assert not [url for url in re.findall(r"https?://[^\s\"'`)]+", html) if not NAMESPACES.match(url)]
    assert "@import" not in html
    assert "url(" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_the_policy_allows_exactly_the_scripts_of_the_page(reader: Reader) -> None:
    meta = next(a for t, a in reader.elements if t == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    policy = meta["content"] or ""
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe-eval" not in policy
    allowed = set(re.findall(r"'(sha256-[^']+)'", policy))
    code = [text for attrs, text in reader.scripts if "type" not in attrs]
    digests = {f"sha256-{base64.b64encode(hashlib.sha256(c.encode()).digest()).decode()}" for c in code}
    assert digests == allowed
    assert len(code) == 3
    assert sum("vegaEmbed=" in c for c in code) == 1


def test_commands_in_a_sentence_are_code_and_names_in_them_stay_text() -> None:
    assert with_commands("try `bathy top`, or `ls`.") == "try <code>bathy top</code>, or <code>ls</code>."
    assert with_commands("`<b>` & <i>") == "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"
    # A name with a backtick: nothing says what is code.
    assert with_commands("`a` of `<b>") == "`a` of `&lt;b&gt;"
    assert with_commands("") == ""


def test_hostile_names_stay_text(html: str, reader: Reader) -> None:
    assert "<img" not in html.replace("&lt;img", "").split("<script", 1)[0]
    assert not [1 for tag, attrs in reader.elements if tag == "img" or any(n.startswith("on") for n in attrs)]
    assert "alert('pool')" not in "".join(t for a, t in reader.scripts if "type" not in a)
    text = "".join(reader.text)
    assert samples.HOSTILE_HOST in text
    assert "</script><script>alert" in text
    assert "\x1b" not in html
    assert "\u202e" not in text


def test_nodes_have_their_network_in_the_page(reader: Reader) -> None:
    text = "".join(reader.text)
    assert "network in, MiB/s" in text
    assert "this machine" in text


def test_every_figure_is_in_the_page_too(html: str, reader: Reader) -> None:
    commands = unpacked(html, "commands-data").values()
    text = "".join([*reader.text, *(one["line"] for ran in commands for one in ran)])
    for expected in (
        "Refused: the image is thin: 61 % of the reads never reached an OSD",
        "229",
        "4.30–4.42 ms",
        "HDD: the disks are the limit",
        "59 % of the latency is replica wait;",
        "All daemons and the load share 2 processors",
        "rados_bench",
        "osd_memory_target",
        "--ioengine=libaio",
        "CEPH_CONF='/etc/ceph/lab one.conf'",
    ):
        assert expected in text, expected
    assert "4.63k" not in text


def test_every_chart_has_data_and_every_reference_exists(html: str, reader: Reader) -> None:
    charts, finding = unpacked(html, "charts-data"), unpacked(html, "finding-data")
    wanted = [a["data-chart"] for _, a in reader.elements if "data-chart" in a]
    assert len(wanted) == 2 + 2 + 12 + 12 + 36 * 4
    for name in wanted:
        chart = charts["charts"][name]
        assert chart["template"] in charts["templates"]
        assert chart["about"]
        for source in ("series", "distributions"):
            for index in chart.get(source, []):
                assert index < len(finding[source])
    assert unpacked(html, "csv-data").startswith("run_id,step_key,")
    ids = {a["id"] for _, a in reader.elements if a.get("id")}
    for _, attrs in reader.elements:
        if (attrs.get("href") or "").startswith("#"):
            assert (attrs["href"] or "")[1:] in ids, attrs["href"]


def test_points_are_kept_with_their_nines(html: str) -> None:
    finding = unpacked(html, "finding-data")
    source = samples.ladder().distributions[0]
    assert finding["distributions"][0]["points"]["quantile"] == [p.quantile for p in source.points]
    latencies = finding["distributions"][0]["points"]["latency_ns"]
    assert latencies == pytest.approx([p.latency_ns for p in source.points], rel=1e-4)


def test_packed_data_cannot_end_its_element() -> None:
    text = packed({"name": "</script><!--\u2028&\ud800"})
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", text)
    found = unpacked(f'<script type="application/gzip" id="x">{text}</script>', "x")
    assert found["name"].startswith("</script><!--\u2028&")


def test_an_empty_run_has_a_report() -> None:
    empty = dataclasses.replace(
        samples.ladder(), groups=(), cross_checks=(), distributions=(), series=(), caveats=(), environment=(),
        commands=(), ended_ns=None, status="running",
    )  # fmt: skip
    assert "No caveats." in as_text(empty, "html")


def test_the_file_stays_small(html: str) -> None:
    assert len(html.encode()) < 1_300_000


def test_a_report_of_a_thousand_steps_is_below_3_mb() -> None:
    """By the way of a run: tables, finding, page. Series are thinned, and the page says which repeats it shows."""
    builder = RunBuilder()
    builder.add_run()
    builder.add_osds("hdd", 3)
    builder.add_osds("ssd", 3)
    repeats = 3
    loads = [
        dataclasses.replace(load, suffix=f"-obj{size}M", op_rows=12) for size in range(1, 11) for load in ladder_loads()
    ]
    steps = [(builder.add_step(load, repeat), load.key, repeat) for repeat in range(repeats) for load in loads]
    argv = tuple(f"--option-of-usual-length-{number}=value" for number in range(30))
    commands = [
        CommandView(key, repeat, "fio-0", ("fio", f"--randseed={index}", *argv), (("CEPH_CONF", "/c"),), 0, 12.3)
        for index, key, repeat in steps
    ]
    assert len(steps) > 1000
    finding = ladder_of(builder.tables(), commands, LAYERS)
    html = as_text(finding, "html")
    assert len(html.encode()) < 3_000_000
    assert "The first 1 of 3 are shown." in html
    # The first repeat of every configuration has its course.
    assert {(one.step_key, one.repeat_index) for one in finding.series if one.name == "iops"} == {
        (key, 0) for _, key, _ in steps
    }
    assert max(len(one.points) for one in finding.series) <= 60


@in_a_browser
def test_the_page_draws_every_open_chart_in_a_browser(html: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(html)
    dom, console = loaded(path, tmp_path / "profile", "--window-size=1400,9000")
    assert console == []
    drawn = re.search(r'<html[^>]*data-drawn="(\d+)"', dom)
    # Ladder and stages of two classes, twelve accounts and distributions, and the first of the folded time series.
    assert drawn is not None
    assert int(drawn[1]) == 2 + 2 + 12 + 12 + 3 * 4
    assert 'data-failed="0"' in dom
    assert 'data-idle="done"' in dom
    assert dom.count('class="mark-symbol role-mark') >= 2
    assert dom.count('class="mark-line role-mark') >= 12
    assert dom.count('class="mark-rect role-mark') >= 2
    assert "229 ±3" in dom
    assert "NaN" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)


@in_a_browser
@pytest.mark.slow
def test_of_a_thousand_steps_few_charts_are_drawn_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(as_text(samples.large_ladder(334), "html"))
    assert path.stat().st_size < 3_000_000
    dom, console = loaded(path, tmp_path / "profile", "--window-size=1400,1000")
    assert console == []
    assert 'data-failed="0"' in dom
    assert 'data-idle="done"' in dom
    # Those in sight, and a few more while the reader looks at them; the others when they come near.
    drawn = re.search(r'<html[^>]*data-drawn="(\d+)"', dom)
    assert drawn is not None
    assert 0 < int(drawn[1]) < 150
    assert len(re.findall(r'class="chart[ "]', dom)) > 1_000


_FRAMED = """<style>iframe { width: WIDTHpx; height: 9000px; border: 0 }</style>
<body><iframe src="report.html"></iframe><script>
addEventListener("load", () => setTimeout(() => {
  const frame = document.querySelector("iframe").contentDocument;
  const shown = Array.from(frame.querySelectorAll("table.ladder td:not([colspan])"));
  const label = (td) => frame.defaultView.getComputedStyle(td, "::before").content;
  const box = (td) => td.getBoundingClientRect();
  const wide = shown.filter((td) => box(td).left < 0 || box(td).right > WIDTH || td.scrollWidth > td.clientWidth + 1);
  const found = {
    page: frame.documentElement.scrollWidth,
    cells: shown.length,
    wide: wide.length,
    labels: Array.from(new Set(shown.map(label))).sort(),
    scrolled: Array.from(frame.querySelectorAll(".scroll")).filter((e) => e.scrollWidth > e.clientWidth + 1).length,
  };
  document.body.dataset.found = JSON.stringify(found);
}, 3000));
</script></body>"""


def widest(value: Any) -> Any:
    """Return a finding whose figures all have wide intervals: the longest that stands in a cell."""
    if isinstance(value, Figure):
        known = value.value
        return value if known is None else dataclasses.replace(value, low=0.6173 * known, high=1.3927 * known)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: widest(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **changed)
    return tuple(map(widest, value)) if isinstance(value, tuple) else value


@in_a_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_figures_are_readable_on_a_telephone_and_on_a_screen(width: int, tmp_path: Path) -> None:
    """No cell is cut off or has to be scrolled to; where the columns have no head, each says which figure it is."""
    (tmp_path / "report.html").write_text(as_text(widest(samples.ladder()), "html"))
    outer = tmp_path / "framed.html"
    outer.write_text(_FRAMED.replace("WIDTH", str(width)))
    dom, _ = loaded(outer, tmp_path / "profile", "--allow-file-access-from-files", "--window-size=1400,1000")
    match = re.search(r'data-found="([^"]*)"', dom)
    assert match is not None
    found = json.loads(match[1].replace("&quot;", '"'))
    assert found["cells"] > 300
    assert found["wide"] == 0
    assert found["scrolled"] == 0
    assert found["page"] <= width
    if width > 560:
        return
    assert {label.strip('"') for label in found["labels"]} == {
        "IOPS", "Bandwidth", "Mean", "p50", "p99", "p99.9", "Loss", "Write amplification", "OSD CPU per op",
        "Device utilisation", "Of ceiling", "one I/O takes", "capacity", "ceiling IOPS", "reached", "layer", "node",
        "CPU busy", "network in, MiB/s", "network out, MiB/s", "of the link's speed",
    }  # fmt: skip
