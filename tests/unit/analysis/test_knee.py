"""The knee of a saturation curve is found where it was put, and no point beyond it stands as a run's result."""

from __future__ import annotations

import io

import pytest
from tests.unit.analysis.builders import LAYERS, Load, RunBuilder, ladder_of

from bathyscope import views
from bathyscope.records.finding import LadderFinding

DEPTHS = (1, 4, 16, 64)


def built(
    curves: dict[str, dict[int, float]], *, repeats: int = 3, noise: float = 0.01, **load: object
) -> LadderFinding:
    """Return the ladder of a run with one step for each op and depth."""
    builder = RunBuilder(seed=7)
    builder.add_osds("hdd", 3)
    for repeat in range(repeats):
        for op, curve in curves.items():
            for depth, iops in curve.items():
                builder.add_step(
                    Load(op=op, queue_depth=depth, iops=iops, noise=noise, op_rows=0, runtime_s=5, **load), repeat
                )  # type: ignore[arg-type]
    return ladder_of(builder.tables(), layers=LAYERS)


def closed_loop(depths: tuple[int, ...], service_s: float, servers: int) -> dict[int, float]:
    """IOPS of a closed system: it grows with the depth until all servers are busy, then not at all."""
    return {depth: min(depth, servers) / service_s for depth in depths}


@pytest.mark.parametrize("servers", [1, 4, 16])
def test_the_knee_is_where_the_servers_are_busy(servers: int) -> None:
    (knee,) = built({"randread": closed_loop(DEPTHS, 0.01, servers)}).knees
    assert (knee.knee.queue_depth, knee.reached) == (servers, True)
    assert knee.knee_range == (servers, servers)
    assert [p.queue_depth for p in knee.points] == list(DEPTHS)
    figure = knee.best.iops
    assert figure.value == max(p.iops.value or 0 for p in knee.points)
    assert figure.low is not None
    assert figure.low <= figure.value <= (figure.high or 0)
    assert f"QD{servers}" in knee.sentence


def test_a_curve_that_still_rises_has_no_knee_yet() -> None:
    finding = built({"randread": closed_loop(DEPTHS, 0.01, 1000)})
    (knee,) = finding.knees
    assert (knee.knee.queue_depth, knee.reached) == (64, False)
    assert "the knee is not reached at QD64" in knee.sentence
    assert "QD64, knee not reached: HDD " in finding.headline


def test_repeats_that_scatter_leave_the_knee_open() -> None:
    # From QD1 to QD4 the IOPS double: the power of both depths is the same.
    finding = built({"randread": {1: 100, 4: 200, 16: 210, 64: 212}}, noise=0.05)
    (knee,) = finding.knees
    assert knee.knee_range == (1, 4)
    assert ", the knee (open from QD1 to QD4): HDD " in finding.headline
    beyond = {g.pattern for g in finding.groups if "beyond the knee" in g.sentence}
    assert beyond == {"randread-4K-qd16", "randread-4K-qd64"}
    assert "the repeats leave it open from QD1 to QD4" in knee.sentence


def test_the_headline_is_the_knee_not_a_point_beyond_it() -> None:
    """IOPS that fall beyond the knee, as those of random writes on disks do, are no result."""
    reads, writes = {1: 90, 4: 230, 16: 240, 64: 241}, {1: 60, 4: 70, 16: 72, 64: 50}
    finding = built({"randread": reads, "randwrite": writes})
    assert "QD64" not in finding.headline
    assert "QD16" not in finding.headline
    assert "at QD4, the knee: HDD " in finding.headline
    assert "at QD1, the knee: HDD " in finding.headline
    by_pattern = {knee.pattern: knee for knee in finding.knees}
    assert by_pattern["randwrite-4K"].best.queue_depth == 16
    assert "The most IOPS are at QD16: " in by_pattern["randwrite-4K"].sentence
    beyond = [g for g in finding.groups if "This is beyond the knee" in g.sentence]
    assert {g.pattern for g in beyond} == {
        "randread-4K-qd16", "randread-4K-qd64", "randwrite-4K-qd4", "randwrite-4K-qd16", "randwrite-4K-qd64"
    }  # fmt: skip


def test_two_depths_have_no_knee_but_a_slower_deeper_one_is_no_result() -> None:
    finding = built({"randread": {1: 90, 16: 230}, "randwrite": {1: 70, 16: 50}})
    assert finding.knees == ()
    assert finding.headline.startswith("RBD, 4K random I/O at QD16: HDD 23")
    assert "at QD1: HDD " in finding.headline
    assert finding.headline.endswith(" write IOPS.")


def test_a_refused_depth_is_no_point_of_the_curve() -> None:
    builder = RunBuilder(seed=7)
    for repeat in range(3):
        for depth, iops in closed_loop(DEPTHS, 0.01, 4).items():
            status = "refused" if depth == 64 else "done"
            step = Load(queue_depth=depth, iops=iops, op_rows=0, runtime_s=5, status=status, reason="thin")
            builder.add_step(step, repeat)
    (knee,) = ladder_of(builder.tables()).knees
    assert [p.queue_depth for p in knee.points] == [1, 4, 16]


def test_curves_of_other_loads_are_apart_and_a_held_rate_is_none() -> None:
    builder = RunBuilder(seed=7)
    for depth in DEPTHS:
        builder.add_step(Load(queue_depth=depth, iops=100.0 * depth, op_rows=0, runtime_s=5))
        builder.add_step(Load(queue_depth=depth, iops=90.0, op_rows=0, runtime_s=5, suffix="-j4", jobs=4))
        builder.add_step(Load(queue_depth=depth, iops=50.0, op_rows=0, runtime_s=5, suffix="-rate50"))
    finding = ladder_of(builder.tables())
    assert {knee.pattern for knee in finding.knees} == {"randread-4K", "randread-4K-j4"}


def test_every_view_shows_the_knee() -> None:
    finding = built({"randread": closed_loop(DEPTHS, 0.01, 4)})
    (knee,) = finding.knees
    table = io.StringIO()
    views.render(finding, "table", table, width=400)
    assert knee.sentence in table.getvalue()
    rows = views.as_text(finding, "csv").splitlines()
    place = rows[0].split(",").index("saturation")
    assert [row.split(",")[place] for row in rows[1:]] == [
        "before the knee",
        "knee",
        "beyond the knee",
        "beyond the knee",
    ]
    page = views.as_text(finding, "html")
    assert 'id="saturation"' in page
    assert '<td class="words">knee' in page
    assert knee.sentence in page
    assert '"knees"' in views.as_text(finding, "json")


def test_reads_and_writes_of_a_mixed_load_stand_apart() -> None:
    finding = built({"randrw": {16: 1000.0}}, noise=0.001)
    (point,) = finding.groups[0].points
    reads, writes = point.directions
    assert (reads.direction, writes.direction) == ("read", "write")
    assert reads.iops.value == pytest.approx(700, rel=0.02)
    assert writes.iops.value == pytest.approx(300, rel=0.02)
    assert point.iops.value == pytest.approx((reads.iops.value or 0) + (writes.iops.value or 0), rel=0.01)
    assert reads.latency_ns_p99.value
    assert "700 read + 300 write IOPS" in finding.headline
    table = io.StringIO()
    views.render(finding, "table", table, width=80)
    assert [line.split()[:2] for line in table.getvalue().splitlines() if line.startswith("  reads")] == [
        ["reads", "700"]
    ]
    assert "  writes" in table.getvalue()
    header, *rows = (row.split(",") for row in views.as_text(finding, "csv").splitlines())
    assert [row[header.index("direction")] for row in rows] == ["total", "read", "write"]
    assert [round(float(row[header.index("iops")]), -1) for row in rows] == [1000, 700, 300]
    assert views.as_text(finding, "html").count('class="direction"') == 2


def test_a_load_of_one_direction_is_not_split() -> None:
    finding = built({"randread": {16: 230.0}})
    assert finding.groups[0].points[0].directions == ()
    assert views.as_text(finding, "csv").count("\n") == 2
