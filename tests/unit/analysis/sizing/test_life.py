"""The life of the flash in the advice: what wears out before its time is not advised, and what would last is said."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bathyscope.analysis.sizing import admissions_to_try, build
from bathyscope.analysis.sizing.choice import Floor, choose, main_curve
from bathyscope.analysis.sizing.endurance import Endurance
from bathyscope.analysis.sizing.wear import life_words, option_bytes
from bathyscope.records import CurvePoint, to_table
from bathyscope.records.size_finding import Advice
from bathyscope.units import parse_bytes

from .test_sizing import GIB, _question, _row

ONE_A_DAY = Endurance(drive_writes_per_day=1.0)


def _rows(hits: list[float], written_gib: list[float], **changes: Any) -> list[CurvePoint]:
    return [
        _row(size_bytes=(i + 1) * GIB, read_hit_ratio=h, flash_write_bytes=w * GIB, **changes)
        for i, (h, w) in enumerate(zip(hits, written_gib, strict=True))
    ]


def _advice(rows: list[CurvePoint], **changes: Any) -> Advice:
    question: dict[str, Any] = {"endurance": ONE_A_DAY, "min_life_years": 5.0}
    return build(to_table(CurvePoint, rows), _question(**(question | changes))).advice


# One drive write a day over five years: 2 GiB that are written with 4 GiB a day live 2.5 years.
KNEE_WEARS_OUT = _rows([0.4, 0.8, 0.81, 0.82, 0.83], [8.0, 4.0, 4.0, 4.0, 4.0])


def test_the_knee_that_wears_out_gives_way_to_the_next_size_that_lasts() -> None:
    advice = _advice(KNEE_WEARS_OUT)
    assert (advice.call, advice.size_bytes) == ("worth it", 4 * GIB)
    assert "is the smallest size that lives 5 years" in advice.sentence
    assert "2.00 GiB of flash is the knee, but its flash would live 2.5 years" in advice.reasons


@pytest.mark.parametrize(("floor", "size"), [(0.0, 2), (2.5, 2), (2.6, 3), (4.0, 4)])
def test_the_floor_moves_the_size(floor: float, size: int) -> None:
    assert _advice(KNEE_WEARS_OUT, min_life_years=floor).size_bytes == size * GIB


def test_where_nothing_lasts_no_size_is_advised_and_what_would_last_is_said() -> None:
    advice = _advice(_rows([0.4, 0.8, 0.81, 0.82], [80.0, 40.0, 40.0, 40.0]))
    assert (advice.call, advice.size_bytes, advice.flash_bytes) == ("wears out", None, None)
    assert advice.sentence == (
        "Wears out: 2.00 GiB of flash with 64K lines (s3-fifo) is the knee and 80.0% of reads hit, "
        "but the flash would live 91 days, not 5 years."
    )
    # 40 GiB a day for five years are what 40 GiB at one drive write a day over five years bear.
    assert advice.reasons[:2] == (
        "a drive of 40.0 GiB (1 drive write a day), with the cache on a part of it, would live 5 years",
        "a drive of the cache's size would need 20.0 drive writes a day",
    )
    assert ONE_A_DAY.life_years(40 * GIB, 40.0 * GIB) == pytest.approx(5.0)
    assert Endurance(drive_writes_per_day=20.0).life_years(2 * GIB, 40.0 * GIB) == pytest.approx(5.0)


def test_a_promise_of_total_bytes_asks_for_more_of_them() -> None:
    endurance = Endurance(total_bytes_written=10e12)
    advice = _advice(_rows([0.4, 0.8, 0.81, 0.82], [80.0, 40.0, 40.0, 40.0]), endurance=endurance)
    assert advice.call == "wears out"
    assert advice.reasons[0] == "flash that bears 78.4 TB of writes would live 5 years"
    assert Endurance(total_bytes_written=78.4e12).life_years(1, 40.0 * GIB) == pytest.approx(5.0, rel=0.001)


WEARS_OUT = _rows([0.4, 0.8, 0.81], [80.0] * 3)


@pytest.mark.parametrize(
    ("admission", "names"),
    [
        ("all", ["2-hit", "budget:2048M"]),
        ("bypass", ["bypass+2-hit", "bypass+budget:2048M"]),
        ("3-hit", ["3-hit+budget:2048M"]),
        ("budget:1G", ["budget:1G+2-hit"]),
    ],
)
def test_admissions_that_write_less_are_tried_at_the_size_that_wears_out(admission: str, names: list[str]) -> None:
    rows = [dataclasses.replace(row, admission=admission) for row in WEARS_OUT]
    found = admissions_to_try(to_table(CurvePoint, rows), _question(endurance=ONE_A_DAY, min_life_years=5.0))
    assert found is not None
    assert (found[0].line_bytes, found[1], found[2]) == (65_536, 2 * GIB, names)


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (WEARS_OUT, {"min_life_years": 0.0}),
        (WEARS_OUT, {"endurance": Endurance()}),
        ([dataclasses.replace(row, admission="2-hit+budget:1G") for row in WEARS_OUT], {}),
        (KNEE_WEARS_OUT, {}),
        (_rows([0.01, 0.02, 0.03], [80.0] * 3), {}),
        ([], {}),
    ],
    ids=["no floor", "no promise", "both in use", "a larger size lasts", "not worth it", "no curve"],
)
def test_nothing_is_tried_where_it_would_not_help(rows: list[CurvePoint], changes: dict[str, Any]) -> None:
    question = _question(**({"endurance": ONE_A_DAY, "min_life_years": 5.0} | changes))
    assert admissions_to_try(to_table(CurvePoint, rows), question) is None


def test_what_was_tried_comes_first_and_is_no_curve_of_its_own() -> None:
    tried = [
        _row(size_bytes=2 * GIB, read_hit_ratio=0.75, flash_write_bytes=1.0 * GIB, admission="2-hit"),
        _row(size_bytes=2 * GIB, read_hit_ratio=0.6, flash_write_bytes=4.0 * GIB, admission="budget:2048M"),
    ]
    finding = build(to_table(CurvePoint, [*WEARS_OUT, *tried]), _question(endurance=ONE_A_DAY, min_life_years=5.0))
    assert finding.advice.call == "wears out"
    assert finding.advice.reasons[:2] == (
        "with --admission 2-hit it would live 10 years and 75.0% of reads hit",
        "with --admission budget:2048M it would live only 2.5 years and 60.0% of reads hit",
    )
    assert [c.admission for c in finding.curves] == ["all"]
    assert [c.admission for c in finding.trials] == ["2-hit", "budget:2048M"]


def test_a_larger_size_must_fit_the_budget() -> None:
    advice = _advice(KNEE_WEARS_OUT, budget_bytes=2 * GIB)
    assert advice.call == "wears out"
    assert "uses the budget" in advice.sentence
    assert _advice(KNEE_WEARS_OUT, budget_bytes=5 * GIB).size_bytes == 5 * GIB


def test_of_two_curves_that_meet_a_target_the_one_that_lasts_is_taken() -> None:
    small = _rows([0.9, 0.95, 0.96], [90.0] * 3, line_bytes=4096)
    large = _rows([0.5, 0.9, 0.95], [1.0] * 3, line_bytes=65_536)
    assert _advice(small + large, target_hit=0.85).line_bytes == 65_536
    assert _advice(small + large, target_hit=0.85, min_life_years=0.0).line_bytes == 4096


def test_few_hits_that_last_do_not_beat_many_that_wear_out() -> None:
    few = _rows([0.11, 0.12, 0.13], [0.1] * 3, line_bytes=4096)
    many = _rows([0.4, 0.8, 0.81], [90.0] * 3, line_bytes=65_536)
    advice = _advice(few + many)
    assert (advice.call, advice.line_bytes) == ("wears out", 65_536)


def test_a_life_that_cannot_be_told_is_no_reason_against() -> None:
    rows = _rows([0.4, 0.8, 0.81], [90.0] * 3, duration_s=0.0)
    assert _advice(rows, duration_s=0.0).call == "worth it"
    assert _advice(_rows([0.4, 0.8, 0.81], [90.0] * 3), endurance=Endurance()).call == "worth it"


def test_the_stability_is_judged_at_the_size_that_is_advised() -> None:
    rows = list(KNEE_WEARS_OUT)
    for hour in range(4):
        rows += _rows([0.4, 0.1 * hour, 0.5, 0.5, 0.5], [8.0, 4.0, 4.0, 4.0, 4.0], window=str(hour))
    finding = build(to_table(CurvePoint, rows), _question(endurance=ONE_A_DAY, min_life_years=5.0))
    assert {w.size_bytes for w in finding.stability} == {4 * GIB}
    assert "at 4.00 GiB" in finding.stability_sentence


def test_the_choice_keeps_what_was_preferred() -> None:
    curves = build(to_table(CurvePoint, KNEE_WEARS_OUT), _question(endurance=ONE_A_DAY)).curves
    main = main_curve(curves)
    assert main is not None
    choice = choose(main, Floor(5.0))
    assert (choice.point.size_bytes, choice.preferred.size_bytes) == (4 * GIB, 2 * GIB)


@pytest.mark.parametrize(
    ("years", "words"),
    [
        (5.0, "5 years"),
        (1.0, "1 year"),
        (2.45, "2.5 years"),
        (10.0, "10 years"),
        (0.4, "146 days"),
        (0.001, "less than a day"),
    ],
)
def test_lives_in_words(years: float, words: str) -> None:
    assert life_words(years) == words


@pytest.mark.parametrize("size", [10_240, 999_999, 1 << 30, 53 << 30, 9 << 40, 3 << 50])
def test_an_option_is_read_back_as_no_more_than_was_meant(size: int) -> None:
    assert 0.9 * size <= parse_bytes(option_bytes(size)) <= size


def test_a_budget_of_hardly_anything_is_not_proposed() -> None:
    assert (option_bytes(5000), option_bytes(1023)) == ("4K", "")
