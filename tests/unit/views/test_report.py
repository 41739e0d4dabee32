from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bathyscope.errors import StoreError
from bathyscope.views import report
from bathyscope.views.report.data import json_for_html

from . import samples

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
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
    return report.page(samples.ladder())


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


def test_hostile_names_stay_text(html: str, reader: Reader) -> None:
    assert "<img" not in html.replace("&lt;img", "").split("<script", 1)[0]
    assert not [1 for tag, attrs in reader.elements if tag == "img" or any(n.startswith("on") for n in attrs)]
    assert "alert('pool')" not in "".join(t for a, t in reader.scripts if "type" not in a)
    text = "".join(reader.text)
    assert samples.HOSTILE_HOST in text
    assert "</script><script>alert" in text  # as text, in a command
    assert "\x1b" not in html
    assert "\u202e" not in text


def test_every_figure_is_in_the_tables_too(reader: Reader) -> None:
    text = "".join(reader.text)
    for expected in (
        "Refused: the image is thin",
        "229",
        "4.30–4.42 ms",
        "HDD is held back by its disks",
        "61 % of the latency is waiting for replicas.",
        "All daemons and the load share 2 processors",
        "rados_bench",
        "osd_memory_target",
        "--ioengine=libaio",
        "CEPH_CONF='/etc/ceph/lab one.conf'",
    ):
        assert expected in text, expected
    assert "4.63k" not in text


def test_every_chart_has_data_and_every_reference_exists(reader: Reader) -> None:
    data = {a["id"]: json.loads(t) for a, t in reader.scripts if "type" in a}
    charts, finding = data["charts-data"], data["finding-data"]
    wanted = [a["data-chart"] for _, a in reader.elements if "data-chart" in a]
    assert len(wanted) == 2 + 2 + 12 + 36 * 4
    for name in wanted:
        chart = charts["charts"][name]
        assert chart["template"] in charts["templates"]
        assert chart["about"]
        for source in ("series", "distributions"):
            for index in chart.get(source, []):
                assert index < len(finding[source])
    assert data["csv-data"].startswith("run_id,step_key,")
    ids = {a["id"] for _, a in reader.elements if a.get("id")}
    for _, attrs in reader.elements:
        if (attrs.get("href") or "").startswith("#"):
            assert (attrs["href"] or "")[1:] in ids, attrs["href"]


def test_points_are_kept_with_their_nines(reader: Reader) -> None:
    finding = next(json.loads(t) for a, t in reader.scripts if a.get("id") == "finding-data")
    source = samples.ladder().distributions[0]
    assert finding["distributions"][0]["points"]["quantile"] == [p.quantile for p in source.points]
    latencies = finding["distributions"][0]["points"]["latency_ns"]
    assert latencies == pytest.approx([p.latency_ns for p in source.points], rel=1e-4)


def test_json_for_html_cannot_end_its_element() -> None:
    text = json_for_html({"name": "</script><!--\u2028&\ud800"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text)["name"].startswith("</script><!--\u2028&")


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    empty = dataclasses.replace(
        samples.ladder(), groups=(), witnesses=(), distributions=(), series=(), caveats=(), environment=(), commands=(),
        ended_ns=None, status="running",
    )  # fmt: skip
    path = report.write(empty, tmp_path / "new" / "report.html")
    assert "Nothing was noticed" in path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        report.write(samples.ladder(), tmp_path / "file" / "report.html")


def test_the_file_stays_small(html: str) -> None:
    assert len(html.encode()) < 2_000_000


def chromium(path: Path, scratch: Path, *options: str) -> tuple[str, list[str]]:
    """Return the document after loading, and what the page said on its console."""
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={scratch}", "--enable-logging=stderr", "--virtual-time-budget=20000", *options]
    command += ["--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the report is not loaded in a browser")
def test_the_page_draws_every_open_chart_in_a_browser(tmp_path: Path) -> None:
    path = report.write(samples.ladder(), tmp_path / "report.html")
    dom, console = chromium(path, tmp_path / "profile", "--window-size=1400,9000")
    assert console == []
    drawn = re.search(r'<html[^>]*data-drawn="(\d+)"', dom)
    # Ladder and stages of two classes, twelve distributions, and the first of the folded time series.
    assert drawn is not None
    assert int(drawn[1]) == 2 + 2 + 12 + 3 * 4
    assert 'data-failed="0"' in dom
    assert 'data-idle="done"' in dom
    assert dom.count('class="mark-symbol role-mark') >= 2
    assert dom.count('class="mark-line role-mark') >= 12
    assert dom.count('class="mark-rect role-mark') >= 2
    assert "229 ±3" in dom
    assert "NaN" not in re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the report is not loaded in a browser")
@pytest.mark.slow
def test_a_thousand_steps_open_quickly(tmp_path: Path) -> None:
    path = report.write(samples.large_ladder(334), tmp_path / "large.html")
    assert path.stat().st_size < 8_000_000
    started = time.monotonic()
    dom, console = chromium(path, tmp_path / "profile", "--window-size=1400,1000")
    assert console == []
    assert 'data-failed="0"' in dom
    # Far below what drawing all 4,000 charts would take, start of the browser included.
    assert time.monotonic() - started < 60
