"""An OSD's own limit that held clients back is found in the counters of its throttles."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bathyscope.analysis.account.throttles import throttles
from bathyscope.records import PerfCounter, to_table

OSDS = frozenset({0, 1})


def counters(section: str, daemon: str = "osd.0", **grown: float) -> pa.Table:
    return to_table(
        PerfCounter,
        [
            PerfCounter(10**9, 10**9, daemon, section, name, "counter", value, None, None)
            for name, value in grown.items()
        ],
    )


MESSAGES = "throttle-osd_client_messages"


def test_messages_that_had_to_come_again_are_the_share_held_back() -> None:
    """As osd_client_message_cap=1 on one OSD was recorded."""
    (found,) = throttles(counters(MESSAGES, get=16517, get_or_fail_success=16517, get_or_fail_fail=7013), OSDS)
    assert (found.subject, found.option) == ("osd.0", "osd_client_message_cap")
    assert found.held_share.value == pytest.approx(7013 / 23530)
    assert found.held_share.samples == 23530


def test_waits_count_as_well_and_the_worst_is_first() -> None:
    waits = to_table(
        PerfCounter,
        [
            PerfCounter(10**9, 10**9, "osd.1", "throttle-bluestore_throttle_bytes", "wait", "average", 3.5, 500, None),
            PerfCounter(
                10**9, 10**9, "osd.1", "throttle-bluestore_throttle_bytes", "get", "counter", 500.0, None, None
            ),
        ],
    )
    table = pa.concat_tables([counters(MESSAGES, get=900, get_or_fail_fail=100), waits])
    assert [(one.subject, one.option) for one in throttles(table, OSDS)] == [
        ("osd.1", "bluestore_throttle_bytes"),
        ("osd.0", "osd_client_message_cap"),
    ]


@pytest.mark.parametrize(
    "table",
    [
        counters(MESSAGES, get=16517, get_or_fail_fail=40),
        counters("throttle-msgr_dispatch_throttler-client", get=10, get_or_fail_fail=90),
        counters(MESSAGES, "osd.7", get=10, get_or_fail_fail=90),
        counters(MESSAGES),
    ],
)
def test_nothing_is_said_of_a_few_of_other_limits_and_of_other_osds(table: pa.Table) -> None:
    assert throttles(table, OSDS) == ()


def test_without_osds_under_test() -> None:
    assert throttles(counters(MESSAGES, get=10, get_or_fail_fail=90), None) == ()
