"""How the clock of another machine goes against ours, by the times of questions and answers alone.

Each exchange has four times: ours when the question was sent, theirs before and after the reading, ours when the answer
was there. Of the fastest round trip (theirs not counted), theirs lies in the middle of ours, and the error is at most
half of that round trip.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from bathyscope.errors import ParseError
from bathyscope.fields import as_dict, as_int, parsing
from bathyscope.records import RawAnswer

Times = Callable[[RawAnswer], tuple[int, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class NodeClock:
    """Their time less ours, and how far off that can be."""

    offset_ns: int
    error_ns: int

    def ours_ns(self, answer: RawAnswer) -> int:
        """Return the time by our clock at which a reading was done.

        That lies between question and answer whatever their clock says, also when somebody sets it meanwhile.
        """
        return min(max(_times(answer)[1] - self.offset_ns, answer.started_ns), answer.ended_ns)


def clock_of(answers: Iterable[RawAnswer], times: Times | None = None) -> NodeClock | None:
    """Return the clock by the fastest of the exchanges; None without any that can be read.

    `times` reads theirs from an answer, before and after the reading; without it they are the sampler's.
    """
    clocks = []
    for answer in answers:
        if answer.exit_code != 0:
            continue
        try:
            before_ns, after_ns = (times or _times)(answer)
        except ParseError:
            continue
        trip_ns = answer.ended_ns - answer.started_ns - (after_ns - before_ns)
        offset_ns = ((before_ns - answer.started_ns) + (after_ns - answer.ended_ns)) // 2
        # A clock that was set during the exchange, backwards or far ahead, tells nothing.
        if after_ns >= before_ns and trip_ns >= 0:
            clocks.append(NodeClock(offset_ns, (trip_ns + 1) // 2))
    return min(clocks, key=lambda clock: clock.error_ns, default=None)


def _times(answer: RawAnswer) -> tuple[int, int]:
    """Return their times before and after the reading. Raises ParseError."""
    said = answer.json()
    with parsing(answer.label):
        return as_int(as_dict(said)["before_ns"]), as_int(as_dict(said)["after_ns"])
