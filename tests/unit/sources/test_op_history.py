"""Op history of 16.2 and 20.2: a known load on a pool of three replicas, found op by op."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bathyscope.errors import ParseError
from bathyscope.records import Op, to_table
from bathyscope.sources import op_history
from bathyscope.sources.base import RawAnswer

Recorded = Callable[[str], list[RawAnswer]]
Mutate = Callable[[bytes, st.DataObject], bytes]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "op_history"
SIZE = 5000


def ops_of(recorded: Recorded, version: str, *, size: int = SIZE, **options: object) -> list[Op]:
    since, until = map(int, (FIXTURES / version / "three-replicas" / "window.txt").read_text().split())
    answers = recorded(f"op_history/{version}/three-replicas")
    return op_history.parse("r", 1, answers, since, until, size_limit=size, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_of_211_known_ops_is_found_once(recorded: Recorded, version: str) -> None:
    ops = ops_of(recorded, version)
    assert Counter(op.op for op in ops) == {"read": 159, "write": 52}
    assert all(op.length_bytes == 4096 and op.offset_bytes is not None and op.offset_bytes % 4096 == 0 for op in ops)
    assert all((op.object_name or "").startswith("objects-8M-obj1M-0.") for op in ops)
    assert len({op.client for op in ops}) == 1
    assert all(op.complete_sample for op in ops)
    assert all(op.client_address is not None and "/" not in op.client_address for op in ops)
    assert to_table(Op, ops).num_rows == 211


@pytest.mark.parametrize("version", VERSIONS)
def test_stages_add_up_to_the_duration_and_none_is_negative(recorded: Recorded, version: str) -> None:
    for op in ops_of(recorded, version):
        stages = (op.queue_ns, op.prepare_ns, op.store_ns, op.replica_wait_ns, op.reply_ns)
        assert all(stage is None or 0 <= stage < 60_000_000_000 for stage in stages)
        assert sum(stage or 0 for stage in stages) == op.duration_ns
        if op.op == "read":
            assert op.replica_wait_ns is None
            assert op.slowest_peer is None
        else:
            assert op.replica_wait_ns is not None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_slowest_of_two_replicas_is_told_from_their_own_histories(recorded: Recorded, version: str) -> None:
    writes = [op for op in ops_of(recorded, version) if op.op == "write"]
    waited = [op for op in writes if op.replica_wait_ns]
    assert waited
    assert all(op.slowest_peer is not None and op.slowest_peer != op.osd for op in waited)
    assert all(op.slowest_peer is None for op in writes if not op.replica_wait_ns)
    # Without the other histories it cannot be told, and is not.
    osd = waited[0].osd
    alone = [a for a in recorded(f"op_history/{version}/three-replicas") if a.label == f"op_history-osd.{osd}"]
    assert all(op.slowest_peer is None for op in op_history.parse("r", 1, alone, 0, 2**62, size_limit=SIZE))


def test_a_full_history_is_not_a_complete_sample(recorded: Recorded) -> None:
    answers = recorded("op_history/16.2.15/three-replicas")
    counts = {a.label: len(json.loads(a.stdout)["ops"]) for a in answers}
    size = sorted(counts.values())[1]
    complete = {f"op_history-osd.{op.osd}": op.complete_sample for op in ops_of(recorded, "16.2.15", size=size)}
    assert complete == {label: count < size for label, count in counts.items()}


def test_a_history_that_does_not_reach_back_is_not_complete(recorded: Recorded) -> None:
    answers = []
    for answer in recorded("op_history/16.2.15/three-replicas"):
        value = json.loads(answer.stdout)
        value["duration"] = 0
        answers.append(dataclasses.replace(answer, stdout=json.dumps(value).encode()))
    since, until = map(int, (FIXTURES / "16.2.15" / "three-replicas" / "window.txt").read_text().split())
    ops = op_history.parse("r", 1, answers, since, until, size_limit=SIZE)
    assert len(ops) == 211
    assert not any(op.complete_sample for op in ops)


def test_ops_outside_of_the_window_and_of_other_pools_are_left_out(recorded: Recorded) -> None:
    ops = sorted(ops_of(recorded, "20.2.4"), key=lambda op: op.started_ns)
    answers = recorded("op_history/20.2.4/three-replicas")
    half = ops[100].started_ns
    assert len(op_history.parse("r", 1, answers, half, ops[-1].started_ns, size_limit=SIZE)) == 111
    assert ops_of(recorded, "20.2.4", pool_ids=frozenset({ops[0].pool_id})) == ops_of(recorded, "20.2.4")
    assert ops_of(recorded, "20.2.4", pool_ids=frozenset({99})) == []


def test_options_are_read_and_restored_exactly(recorded: Recorded) -> None:
    values = op_history.parse_get(recorded("op_history/16.2.15/options"))
    assert values == {0: {"osd_op_history_size": "5000", "osd_op_history_duration": "600"}}
    restore = [dict(request.command) for request in op_history.plan_restore(values)]
    assert {words["var"]: words["val"] for words in restore} == {
        "osd_op_history_size": ["5000"],
        "osd_op_history_duration": ["600"],
    }
    assert [r.daemon for r in op_history.plan_set([1, 2], 9, 8)] == ["osd.1", "osd.1", "osd.2", "osd.2"]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        (
            (
                "osd_op(client.4157.0:9 2.2 2:422bb82f:::rbd_data.10.0b:head [set-alloc-hint object_size 4194304 "
                "write_size 4194304,write 0~4096 in=4096b] snapc 0=[] ondisk+write+known_if_redirected e22)"
            ),
            ("rbd_data.10.0b", "write", 0, 4096, "2.2"),
        ),
        (
            (
                "osd_op(client.1.0:9 7.1fs0 7:42:ns:key:a [b] (c d:head [sparse-read 8192~512,read 0~4] snapc 0=[] "
                "RETRY=1 ondisk+retry+read+known_if_redirected e22)"
            ),
            ("a [b] (c d", "read", 8192, 516, "7.1f"),
        ),
        (
            "osd_op(client.1.0:9 7.1f 7.2a7f (undecoded) ondisk+read+known_if_redirected e22)",
            (None, "read", None, None, "7.1f"),
        ),
        (
            "osd_op(client.1.0:9 7.1f 7:42:::rbd_header.1:head [call lock.get_info in=24b] snapc 0=[] ondisk+read e2)",
            ("rbd_header.1", "other", None, None, "7.1f"),
        ),
    ],
)
def test_descriptions_of_every_kind(description: str, expected: tuple[object, ...]) -> None:
    events = [{"event": "initiated", "time": "2026-01-01T00:00:00.000001+0000"}]
    op = {"description": description, "initiated_at": events[0]["time"], "age": 1.5, "type_data": {"events": events}}
    answer = raw({"size": 20, "duration": 600, "ops": [op]})
    (row,) = op_history.parse("r", 0, [answer], 0, 2**62, size_limit=20)
    assert (row.object_name, row.op, row.offset_bytes, row.length_bytes, row.pg) == expected
    assert row.queue_ns is None
    assert row.client_address is None


def test_a_refused_history_is_no_rows_and_can_be_raised() -> None:
    refused = dataclasses.replace(raw({}), exit_code=-13, stderr=b"access denied")
    assert op_history.parse("r", 0, [refused], 0, 1, size_limit=20) == []
    with pytest.raises(ParseError, match="access denied"):
        op_history.raise_if_refused([refused])


def raw(value: object) -> RawAnswer:
    return RawAnswer("op_history-osd.0", (), (), 0, json.dumps(value).encode(), b"", 10**18, 10**18)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_broken_histories_are_parse_errors_and_nothing_else(
    recorded: Recorded, mutate: Mutate, data: st.DataObject
) -> None:
    answer = recorded("op_history/16.2.15/three-replicas")[0]
    value = json.loads(answer.stdout)
    value["ops"] = value["ops"][-12:]
    broken = dataclasses.replace(answer, stdout=mutate(json.dumps(value, indent=1).encode(), data))
    try:
        to_table(Op, op_history.parse("r", 0, [broken], 0, 2**62, size_limit=SIZE))
    except ParseError:
        return
