"""The life of the flash in words, and what would live longer where a size wears out before its time."""

from __future__ import annotations

from collections.abc import Sequence

from bathyscope.analysis.sizing.choice import Floor
from bathyscope.analysis.sizing.endurance import Endurance
from bathyscope.records.size_finding import SizeCurve, SizePoint
from bathyscope.units import format_bytes, three_digits

DECIMAL = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"))


def life_words(years: float) -> str:
    """Return a life as a sentence has it: "4.2 years", or days where it is less than one year."""
    if years < 1:
        days = years * 365
        return f"{days:.0f} days" if days >= 1 else "less than a day"
    return "1 year" if years == 1 else f"{years:.1f} years".replace(".0 ", " ")


def what_would_last(
    point: SizePoint, floor: Floor, endurance: Endurance, trials: Sequence[SizeCurve] = ()
) -> list[str]:
    """Return the ways to a life of `floor.life_years` for a cache of the size of `point`.

    First what was simulated, an admission that writes less; then what follows from the writes: a drive may be larger
    than its cache, and the writes spread over all of it.
    """
    per_day, years = point.flash_write_bytes_per_day, floor.life_years
    if per_day is None or years <= 0:
        return []
    lasting = life_words(years)
    words = [_of_trial(trial, floor) for trial in trials if trial.points]
    capacity = endurance.lasting_capacity_bytes(per_day, years)
    if capacity is not None:
        bears = f"{endurance.drive_writes_per_day:g} drive write{'s' if endurance.drive_writes_per_day != 1 else ''}"
        words.append(
            f"a drive of {format_bytes(capacity)} ({bears} a day), with the cache on a part of it, would live {lasting}"
        )
        needed = per_day / point.flash_bytes * years / endurance.warranty_years
        words.append(f"a drive of the cache's size would need {three_digits(needed)} drive writes a day")
    elif endurance.total_bytes_written is not None:
        words.append(f"flash that bears {_decimal(per_day * 365 * years)} of writes would live {lasting}")
    return words


def _of_trial(trial: SizeCurve, floor: Floor) -> str:
    """Return what an admission that was tried makes of the size."""
    point = trial.points[0]
    enough = "" if floor.lasts(point) else "only "
    return (
        f"with --admission {trial.admission} it would live {enough}{life_words(point.life_years or 0.0)} "
        f"and {point.read_hit.value or 0.0:.1%} of reads hit"
    )


def gentler_admissions(point: SizePoint, admission: str, floor: Floor, endurance: Endurance) -> list[str]:
    """Return admissions that write less to flash than `admission`, worth a simulation at the size of `point`."""
    kept = "" if admission == "all" else f"{admission}+"
    found = [f"{kept}2-hit"] if "-hit" not in admission else []
    bearable = endurance.bearable_bytes_per_day(point.flash_bytes, floor.life_years) if floor.life_years > 0 else None
    if bearable is not None and "budget:" not in admission and (budget := option_bytes(bearable)):
        found.append(f"{kept}budget:{budget}")
    return found


def option_bytes(size_bytes: float) -> str:
    """Return a size as an option has it, rounded down to at least two digits: "53G", "1536M"; "" below 1 KiB."""
    for power, letter in ((4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if size_bytes >= 10 * 1024**power or (power == 1 and size_bytes >= 1024):
            return f"{int(size_bytes // 1024**power)}{letter}"
    return ""


def _decimal(size_bytes: float) -> str:
    """Return bytes in decimal units, as data sheets have them: "1.20 PB"."""
    for unit, name in DECIMAL:
        if size_bytes >= unit:
            return f"{three_digits(size_bytes / unit)} {name}"
    return f"{size_bytes:.0f} B"
