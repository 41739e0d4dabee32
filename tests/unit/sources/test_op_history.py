"""Op history of 16.2, 18.2 and 20.2: a known load on a pool of three replicas, found op by op."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bathyscope.errors import ParseError
from bathyscope.host import CephRequest
from bathyscope.records import Op, RawAnswer, from_table
from bathyscope.sources import op_history
from bathyscope.sources.op_history import SOURCE
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
VERSIONS = ["16.2.15", "18.2.7", "20.2.4"]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "op_history"
SIZE = 5000


def parse(answers: list[RawAnswer], **scope: object) -> list[Op]:
    about = Scope(target=Target(name="t"), op_history_ops=SIZE).model_copy(update=scope)
    return from_table(Op, SOURCE.parse(answers, about)[Op])


def window(version: str) -> tuple[int, int]:
    since, until = (FIXTURES / version / "three-replicas" / "window.txt").read_text().split()
    return int(since), int(until)


def ops_of(recorded: Recorded, version: str, **scope: object) -> list[Op]:
    since, until = window(version)
    ops = parse(recorded(f"op_history/{version}/three-replicas"), **scope)
    return [op for op in ops if since <= op.started_ns <= until]


@pytest.mark.parametrize("version", VERSIONS)
def test_each_of_211_known_ops_is_found_once(recorded: Recorded, version: str) -> None:
    ops = ops_of(recorded, version)
    assert Counter(op.op for op in ops) == {"read": 159, "write": 52}
    assert all(op.length_bytes == 4096 and op.offset_bytes is not None and op.offset_bytes % 4096 == 0 for op in ops)
    assert all((op.object_name or "").startswith("objects-8M-obj1M-0.") for op in ops)
    assert len({op.client for op in ops}) == 1
    assert all(op.complete_sample for op in ops)
    assert all(op.client_address is not None and "/" not in op.client_address for op in ops)
    assert all(op.complete_since_ns <= window(version)[0] for op in ops)


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
    # Without the other histories the slowest replica is not known.
    osd = waited[0].osd
    alone = [a for a in recorded(f"op_history/{version}/three-replicas") if a.label == f"op_history-osd.{osd}"]
    assert all(op.slowest_peer is None for op in parse(alone))


def test_a_full_history_is_not_a_complete_sample(recorded: Recorded) -> None:
    answers = recorded("op_history/16.2.15/three-replicas")
    counts = {a.label: len(json.loads(a.stdout)["ops"]) for a in answers}
    size = sorted(counts.values())[1]
    complete = {
        f"op_history-osd.{op.osd}": op.complete_sample for op in ops_of(recorded, "16.2.15", op_history_ops=size)
    }
    assert complete == {label: count < size for label, count in counts.items()}
    # Where the scope does not name a size, the history's own counts: 5000 when these were recorded.
    assert all(op.complete_sample for op in ops_of(recorded, "16.2.15", op_history_ops=None))


def test_a_history_says_since_when_it_is_whole(recorded: Recorded) -> None:
    answers = []
    for answer in recorded("op_history/16.2.15/three-replicas"):
        value = json.loads(answer.stdout)
        value["duration"] = 0
        answers.append(dataclasses.replace(answer, stdout=json.dumps(value).encode()))
    until = window("16.2.15")[1]
    ops = parse(answers)
    assert len([op for op in ops if window("16.2.15")[0] <= op.started_ns <= until]) == 211
    for op, longer in zip(ops, parse(recorded("op_history/16.2.15/three-replicas")), strict=True):
        assert op.complete_since_ns == longer.complete_since_ns + 600 * 10**9
        # By the OSD's clock, and asked after the load: nothing of the load is certain to be there.
        assert op.complete_since_ns > op.started_ns


def test_ops_of_other_pools_are_left_out(recorded: Recorded) -> None:
    ops = ops_of(recorded, "20.2.4")
    pools = {"mine": ops[0].pool_id, "theirs": 99}
    assert ops_of(recorded, "20.2.4", pools=pools, own_pools=("mine",)) == ops
    assert ops_of(recorded, "20.2.4", pools=pools, own_pools=("theirs",)) == []
    assert ops_of(recorded, "20.2.4", pools=pools, own_pools=("not there",)) == []
    assert ops_of(recorded, "20.2.4", pools=pools, own_pools=()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_an_op_that_several_histories_hold_is_one_row(recorded: Recorded, version: str) -> None:
    answers = recorded(f"op_history/{version}/three-replicas")
    once = parse(answers)
    early = []
    for answer in answers:
        value = json.loads(answer.stdout)
        value["ops"] = value["ops"][: len(value["ops"]) // 2]
        early.append(dataclasses.replace(answer, stdout=json.dumps(value).encode()))
    overlapping = parse([*early, *answers, *answers])
    key = lambda op: (op.osd, op.started_ns, op.object_name, op.offset_bytes)  # noqa: E731
    plain = [dataclasses.replace(op, complete_since_ns=0) for op in sorted(once, key=key)]
    assert [dataclasses.replace(op, complete_since_ns=0) for op in sorted(overlapping, key=key)] == plain


def test_a_later_history_that_is_complete_vouches_for_the_op() -> None:
    ops = [entry(f"osd_op(client.1.0:{n} 2.1 2:42:::a:head [read 0~1] snapc 0=[] ondisk+read e1)", n) for n in (1, 2)]
    full = {"size": 2, "duration": 600, "ops": ops}
    assert [row.complete_sample for row in parse([raw(full)], op_history_ops=None)] == [False, False]
    rows = parse([raw(full), raw({**full, "size": 20, "duration": 60, "ops": ops[1:]})], op_history_ops=None)
    assert [row.complete_sample for row in rows] == [False, True]
    assert rows[1].complete_since_ns == rows[0].complete_since_ns + 540 * 10**9


def test_an_osd_that_does_not_have_the_size_that_was_set_is_full_at_its_own() -> None:
    text = "osd_op(client.1.0:{} 2.1 2:42:::a:head [read 0~1] snapc 0=[] ondisk+read e1)"
    history = {"duration": 600, "ops": [entry(text.format(n), n) for n in range(1, 21)]}
    for size, is_complete in ((20, False), (1000, True)):
        rows = parse([raw({"size": size, **history})], op_history_ops=1000)
        assert {row.complete_sample for row in rows} == {is_complete}


def test_a_request_that_was_sent_again_is_another_op() -> None:
    text = "osd_op(client.1.0:9 2.1 2:42:::a:head [read 0~1] snapc 0=[] RETRY=1 ondisk+retry+read e1)"
    rows = parse([raw({"size": 20, "duration": 600, "ops": [entry(text, 1), entry(text, 2)]})])
    assert [row.started_ns % 10**9 for row in rows] == [1000, 2000]


def test_a_history_of_a_hundred_thousand_ops_is_as_many_rows(recorded: Recorded) -> None:
    value = json.loads(recorded("op_history/20.2.4/three-replicas")[0].stdout)
    op = json.dumps(next(op for op in value["ops"] if op["description"].startswith("osd_op(")))
    client = json.loads(op)["description"].split(":")[0].removeprefix("osd_op(")
    ops = ",".join(op.replace(f"{client}:", f"{client}:1000{n}", 1) for n in range(100_000))
    text = f'{{"size": 100001, "duration": 600, "ops": [{ops}]}}'
    table = SOURCE.parse([dataclasses.replace(raw({}), stdout=text.encode())], Scope(target=Target(name="t")))[Op]
    assert table.num_rows == 100_000
    assert table.column("complete_sample").unique().to_pylist() == [True]


def test_requests_for_histories_and_for_their_size() -> None:
    scope = Scope(target=Target(name="t"), asked_osds=tuple(range(1000)))
    asked = [request.daemon for request in SOURCE.plan(scope) if isinstance(request, CephRequest)]
    assert len(asked) == op_history.ASKED_MAX == 32
    assert asked == [f"osd.{osd}" for osd in op_history.asked(range(1000))]
    assert asked[:2] == ["osd.0", "osd.31"]
    requests = op_history.resize([1, 2], 9, 8)
    assert [request.daemon for request in requests] == ["osd.1", "osd.1", "osd.2", "osd.2"]
    assert [dict(request.command)["var"] for request in requests[:2]] == list(op_history.OPTIONS)
    assert [dict(request.command)["val"] for request in requests[:2]] == [["9"], ["8"]]
    assert {dict(request.command)["prefix"] for request in requests} == {"config set"}


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
    (row,) = parse([raw({"size": 20, "duration": 600, "ops": [entry(description, 1)]})])
    assert (row.object_name, row.op, row.offset_bytes, row.length_bytes, row.pg) == expected
    assert row.queue_ns is None
    assert row.client_address is None


def test_a_refused_or_empty_history_is_no_rows() -> None:
    refused = dataclasses.replace(raw({}), exit_code=-13, stderr=b"access denied")
    empty = raw({"size": 20, "duration": 600, "ops": []})
    assert parse([refused, empty]) == []
    assert parse([]) == []


def test_names_with_escapes_and_members_in_another_order() -> None:
    op = entry('osd_op(client.1.0:9 7.1f 7:42:::a \t"ü😀\\:head [read 0~1] snapc 0=[] ondisk+read e2)', 1)
    turned = {"ops": [dict(reversed(op.items()))], "new in a later release": [{"a": {}}], "duration": 600, "size": 20}
    for text in (json.dumps(turned), json.dumps(turned, indent=2), json.dumps(turned, ensure_ascii=False)):
        (row,) = parse([dataclasses.replace(raw({}), stdout=text.encode())])
        assert (row.object_name, row.offset_bytes) == ('a \t"ü😀\\', 0)


@pytest.mark.parametrize(
    ("stdout", "problem"),
    [
        (b"", "the JSON ends too early"),
        (b"Error EINVAL: x", "the history is not an object: Error EINVAL: x"),
        (b'{"ops": [{"description": "a', "a string does not end"),
        (b'{"size": 20}', "no field 'ops'"),
        (b'{"ops": [{"description": 5}]}', "byte 25: a description is not a string: 5}"),
    ],
)
def test_what_is_no_history_is_an_error_that_says_where(stdout: bytes, problem: str) -> None:
    with pytest.raises(ParseError, match=f"op_history-osd.0 has an unexpected form: .*{re.escape(problem)}"):
        parse([dataclasses.replace(raw({}), stdout=stdout)])


def raw(value: object) -> RawAnswer:
    return RawAnswer("op_history-osd.0", (), (), 0, json.dumps(value).encode(), b"", 10**18, 10**18)


def entry(description: str, microsecond: int) -> dict[str, object]:
    """An op that has only begun, that many microseconds after a full second."""
    time = f"2026-01-01T00:00:00.{microsecond:06d}+0000"
    events = [{"event": "initiated", "time": time}]
    age = 1.5 - microsecond / 1e6
    return {"description": description, "initiated_at": time, "age": age, "type_data": {"events": events}}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_history_without_its_durations_says_the_same(recorded: Recorded, version: str) -> None:
    """They are half of what a run takes on disk, and no row is made of them."""
    answers = recorded(f"op_history/{version}/three-replicas")
    short = [op_history.compact(answer) for answer in answers]
    assert parse(short) == parse(answers) != []
    histories = [(a, b) for a, b in zip(answers, short, strict=True) if a.label.startswith("op_history-osd.")]
    assert histories
    for whole, kept in histories:
        # The history's own duration stays: it says how far back it reaches.
        assert kept.json()["duration"] == whole.json()["duration"]
        assert kept.stdout.count(b'"duration"') == 1
        assert len(kept.stdout) < 0.85 * len(whole.stdout)


def test_a_name_that_looks_like_a_duration_stays() -> None:
    ops = [{"description": 'osd_op(x,"duration": 5)', "duration": 0.25, "age": 1.5, "type_data": {"events": []}}]
    answer = RawAnswer("op_history-osd.0", (), (), 0, json.dumps({"duration": 4, "ops": ops}).encode(), b"", 0, 0)
    (kept,) = op_history.compact(answer).json()["ops"]
    assert kept == {"description": 'osd_op(x,"duration": 5)', "age": 1.5, "type_data": {"events": []}}
    other = dataclasses.replace(answer, label="perf_dump-osd.0")
    assert op_history.compact(other) is other


def test_the_ops_of_a_step_are_bounded_whatever_the_number_of_osds() -> None:
    assert [op_history.ops_each(1000, osds) for osds in (1, 2, 3)] == [1000, 1000, 1000]
    assert all(op_history.ops_each(1000, osds) * osds <= 3000 for osds in range(1, op_history.ASKED_MAX + 1))
    assert op_history.ops_each(20, 32) == 20
