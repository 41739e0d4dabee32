"""Limits of the cluster's configuration on its clients become ceilings and throttles of a load."""

from __future__ import annotations

import pytest
from tests.unit.analysis.builders import Load, RunBuilder, ladder_of

from bathyscope.analysis.account.client_options import client_options
from bathyscope.records import EnvironmentFact, to_table
from bathyscope.records.finding import PointFinding


def options(*facts: tuple[str, str, str], moment: str = "before") -> dict[str, int]:
    return client_options(to_table(EnvironmentFact, [EnvironmentFact(moment, *fact) for fact in facts]))


def test_the_section_of_clients_comes_after_the_global_one() -> None:
    found = options(
        ("config client", "rbd_qos_iops_limit", "300"),
        ("config global", "rbd_qos_iops_limit", "100"),
        ("config global", "rbd_qos_bps_limit", "10M"),
        ("config osd", "rbd_qos_write_iops_limit", "7"),
        ("config client", "rbd_cache", "false"),
        ("osd.0", "config objecter_inflight_ops", "9"),
    )
    assert found == {"rbd_qos_iops_limit": 300, "rbd_qos_bps_limit": 10 << 20}


@pytest.mark.parametrize("value", ["0", "", "none", "-5"])
def test_what_is_no_limit_is_none(value: str) -> None:
    assert options(("config client", "rbd_qos_iops_limit", value)) == {}
    assert options(("config client", "rbd_qos_iops_limit", "9"), moment="after") == {}


def measured(load: Load, option: str, value: str) -> PointFinding:
    """Return the point of a load in a cluster whose clients have an option."""
    builder = RunBuilder()
    builder.add_run()
    builder.add_osds("ssd", 3)
    builder.rows[EnvironmentFact].append(EnvironmentFact("before", "config client", option, value))
    builder.add_step(load)
    return ladder_of(builder.tables()).groups[0].points[0]


READS = Load(device_class="ssd", iops=296.0, noise=0.0, limit_ratio=0.2)


@pytest.mark.parametrize(
    ("load", "option", "value", "capacity"),
    [
        (READS, "rbd_qos_iops_limit", "300", 300.0),
        (READS, "rbd_qos_read_iops_limit", "300", 300.0),
        (READS, "rbd_qos_bps_limit", "1200K", 1200 * 1024.0),
        # Each of two load processes has an image of its own.
        (Load(device_class="ssd", iops=590.0, noise=0.0, limit_ratio=0.2, jobs=2), "rbd_qos_iops_limit", "300", 600.0),
        (
            Load(device_class="ssd", iops=296.0, noise=0.0, limit_ratio=0.2, op="randwrite"),
            *("rbd_qos_write_iops_limit", "300", 300.0),
        ),
    ],
)
def test_the_limit_of_an_image_is_a_ceiling(load: Load, option: str, value: str, capacity: float) -> None:
    point = measured(load, option, value)
    assert point.account is not None
    (ceiling,) = (one for one in point.account.ceilings if one.resource == "image_limit")
    assert ceiling.capacity.value == pytest.approx(capacity)
    assert ceiling.reached.value == pytest.approx(0.98, abs=0.02)
    assert point.verdict.limit == "image_limit"
    assert f"the image's {option} is the limit" in point.verdict.sentence
    assert "ceph config set client" in point.verdict.next_step


def test_an_image_has_no_ceiling_of_the_other_direction_or_of_another_layer() -> None:
    for load, option in (
        (READS, "rbd_qos_write_iops_limit"),
        (Load(layer="rados", device_class="ssd", iops=296.0), "rbd_qos_iops_limit"),
        (READS, "rbd_qos_schedule_tick_min"),
    ):
        account = measured(load, option, "300").account
        assert account is not None
        assert "image_limit" not in {one.resource for one in account.ceilings}


def test_operations_that_librados_does_not_send_are_held_back() -> None:
    point = measured(READS, "objecter_inflight_ops", "4")
    assert point.account is not None
    (throttle,) = point.account.throttles
    assert (throttle.subject, throttle.limit, throttle.held_share.value) == ("the load generator", 4, 0.75)
    assert point.verdict.limit == "in_flight"
    assert (
        "objecter_inflight_ops of 4 keeps 75 % of the load generator's I/Os from being sent" in point.verdict.sentence
    )
    plenty = measured(READS, "objecter_inflight_ops", "16").account
    assert plenty is not None
    assert plenty.throttles == ()
