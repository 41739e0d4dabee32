"""A closed network simulated event by event: what queueing models are held against.

Every customer begins at a branch (an OSD) drawn by its share, or, a write, at several at once; there it visits a
processor and then a disk, both first come, first served with exponential services; it ends with the slowest branch, and
after a delay begins again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

import numpy as np

Place = tuple[int, int]
Job = list[int]


class _Events:
    """The events to come, and the stations with those who wait there. A job counts the branches that it is still at."""

    def __init__(self, branches: Sequence[Sequence[tuple[float, int]]], seed: int) -> None:
        self.branches = branches
        self.generator = np.random.default_rng(seed)
        self._times: list[float] = []
        self._due: list[tuple[float, int, Place, Job]] = []
        self._number = 0
        self._busy: dict[Place, int] = {}
        self._waiting: dict[Place, deque[Job]] = {}

    def after(self, at: float, mean: float, place: Place, job: Job) -> None:
        if not self._times:
            self._times = self.generator.exponential(size=10_000).tolist()
        self._number += 1
        heapq.heappush(self._due, (at + mean * self._times.pop(), self._number, place, job))

    def next(self) -> tuple[float, Place, Job]:
        now, _, place, job = heapq.heappop(self._due)
        return now, place, job

    def arrive(self, now: float, place: Place, job: Job) -> None:
        mean, servers = self.branches[place[0]][place[1]]
        if self._busy.get(place, 0) < servers:
            self._busy[place] = self._busy.get(place, 0) + 1
            self.after(now, mean, place, job)
        else:
            self._waiting.setdefault(place, deque()).append(job)

    def leave(self, now: float, place: Place) -> None:
        if waiting := self._waiting.get(place):
            self.after(now, self.branches[place[0]][place[1]][0], place, waiting.popleft())
        else:
            self._busy[place] -= 1


def simulated_rate(
    customers: int,
    branches: Sequence[Sequence[tuple[float, int]]],
    shares: Sequence[float],
    *,
    delay_s: float = 0.0,
    copies: int = 1,
    ends: int = 25_000,
    seed: int = 1,
) -> float:
    """Return the customers that end a second; a branch is a list of stations: mean service time and servers."""
    events = _Events(branches, seed)
    begun = events.generator.choice(len(branches), size=ends + customers, p=np.asarray(shares) / sum(shares)).tolist()
    delay = (-1, -1)

    def begin(now: float) -> None:
        first, job = begun.pop(), [copies]
        for step in range(copies):
            events.arrive(now, ((first + step) % len(branches), 0), job)

    for _ in range(customers):
        begin(0.0)
    ended, warm, since, now = 0, ends // 5, 0.0, 0.0
    while ended < ends:
        now, place, job = events.next()
        if place == delay:
            begin(now)
            continue
        events.leave(now, place)
        if place[1] + 1 < len(branches[place[0]]):
            events.arrive(now, (place[0], place[1] + 1), job)
            continue
        job[0] -= 1
        if job[0] == 0:
            ended += 1
            since = now if ended == warm else since
            events.after(now, delay_s, delay, job)
    return (ends - warm) / (now - since)
