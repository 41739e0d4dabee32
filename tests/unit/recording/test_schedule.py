"""When a source is asked: on a grid, side by side, backed off, slowed, and never twice at once."""

from __future__ import annotations

import pytest

from bathyscope.recording.schedule import Entry

S = 1_000_000_000


def collected(entry: Entry, at: int, took: int = 0, *, failed: bool = False) -> Entry:
    """Begin what is due at `at` and end it after `took`."""
    assert entry.is_due(at)
    return entry.begin(at).end(at + took, took, failed=failed)


def test_collections_lie_on_a_grid_and_do_not_drift() -> None:
    entry = Entry(period_ns=S, due_ns=0)
    for second in range(5):
        assert entry.due_ns == second * S
        # The thread wakes a little late, the collection takes a little: neither adds up.
        entry = collected(entry, second * S + 3_000_000, 20_000_000)
    assert entry.due_ns == 5 * S


def test_what_passes_while_a_collection_is_under_way_is_missed() -> None:
    entry = Entry(period_ns=S, due_ns=0).begin(0)
    assert not entry.is_due(S - 1)
    assert entry.is_due(S)
    entry = entry.skip(S)
    assert (entry.running, entry.due_ns) == (True, 2 * S)
    entry = entry.end(S + S // 2, S + S // 2, failed=False)
    assert (entry.running, entry.due_ns) == (False, 2 * S)


def test_a_late_recorder_goes_on_with_the_present_time_of_the_grid() -> None:
    entry = Entry(period_ns=S, due_ns=10 * S)
    assert not entry.late(10 * S + S // 2)
    assert entry.late(14 * S + S // 2)
    entry = entry.begin(14 * S + S // 2)
    assert (entry.slot_ns, entry.due_ns) == (14 * S, 15 * S)


def test_failures_double_the_period_up_to_sixteen_times() -> None:
    entry, at, waits = Entry(period_ns=S, due_ns=0), 0, []
    for _ in range(7):
        entry = collected(entry, at, failed=True)
        assert entry.due_ns is not None
        waits.append((entry.due_ns - at) // S)
        at = entry.due_ns
    assert waits == [2, 4, 8, 16, 16, 16, 16]
    entry = collected(entry, at)
    assert entry.due_ns == at + S


def test_a_long_period_is_not_backed_off_for_hours() -> None:
    assert collected(Entry(period_ns=20 * S, due_ns=0, failures=3), 0, failed=True).due_ns == 60 * S
    assert collected(Entry(period_ns=300 * S, due_ns=0, failures=3), 0, failed=True).due_ns == 300 * S


def test_a_failure_that_takes_long_is_followed_by_a_pause() -> None:
    entry = Entry(period_ns=S, due_ns=0).begin(0)
    for second in range(1, 11):
        entry = entry.skip(second * S)
    assert entry.end(10 * S, 10 * S, failed=True).due_ns == 12 * S


def test_what_costs_more_than_its_budget_is_slowed_and_says_so() -> None:
    entry, at = Entry(period_ns=S, due_ns=0, budget_ratio=0.05), 0
    assert entry.note is None
    for _ in range(3):
        entry = collected(entry, at, 160_000_000)
        at = entry.due_ns or 0
    assert entry.slowed == 4
    assert entry.interval_ns == 4 * S
    assert entry.note == "slowed to every 4 s: every 1 s it would take more than 5 % of the time"
    # It gets quicker: it is sped up again, and does not swing at the limit.
    for _ in range(8):
        at = entry.due_ns or 0
        entry = collected(entry, at, 90_000_000)
    assert entry.slowed == 4
    for _ in range(8):
        at = entry.due_ns or 0
        entry = collected(entry, at, 10_000_000)
    assert entry.slowed == 1
    assert entry.interval_ns == S


def test_one_slow_collection_or_a_failed_one_is_no_reason_to_slow_down() -> None:
    entry = Entry(period_ns=S, due_ns=0)
    for number, took in enumerate((1, 1, 900_000_000, 1, 1)):
        entry = collected(entry, number * S, took)
    assert entry.slowed == 1
    for _ in range(5):
        entry = collected(entry, entry.due_ns or 0, 500_000_000, failed=True)
    assert entry.slowed == 1


def test_a_collection_that_was_asked_for_does_not_move_the_grid() -> None:
    entry = collected(Entry(period_ns=S, due_ns=0), 0).begin_asked()
    assert (entry.running, entry.asked, entry.due_ns) == (True, True, S)
    entry = entry.end(S // 2, 1, failed=False)
    assert (entry.running, entry.asked, entry.due_ns) == (False, False, S)


@pytest.mark.parametrize("sooner", [5 * S, 500 * S])
def test_hasten_only_brings_forward(sooner: int) -> None:
    assert Entry(period_ns=300 * S, due_ns=100 * S).hasten(sooner).due_ns == min(sooner, 100 * S)
    assert Entry(period_ns=300 * S, due_ns=None).hasten(sooner).due_ns is None
