"""A number with its unit and its uncertainty."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """A number with its uncertainty.

    `value` is None when it is not known. `low`..`high` is the 95 % interval (None: no interval can be
    given); `relative_error` is the bound of the instrument (a histogram's bucket width), apart from the
    interval; `samples` is the number of repeats or intervals that it rests on.
    """

    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    relative_error: float = 0.0
    samples: int = 0
