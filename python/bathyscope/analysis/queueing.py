"""Closed queueing networks: the rate of a load that keeps so many I/Os in flight over resources that queue.

Exact mean value analysis (Reiser and Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", Journal of
the ACM 27(2), 1980); Schweitzer's approximation (1979) where that would take long; a resource of several servers by
Seidmann, Schweitzer and Shalev-Oren ("Computerized Closed Queueing Network Models of Flexible Manufacturing Systems",
Large Scale Systems 12, 1987); all as in Lazowska et al., "Quantitative System Performance" (1984).

A replicated write is at several OSDs at once and ends with the slowest. The mean of the longest of r exponential times
of equal mean is H_r (the harmonic number) times that mean, and queueing changes this little (Nelson and Tantawi,
"Approximate Analysis of Fork/Join Synchronization in Parallel Queues", IEEE Transactions on Computers 37(6), 1988). For
unequal times we take the power mean that has this value for equal ones and tends to the longest as it stands out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bathyscope.analysis.columns import Floats

# Up to so many queue lengths worked out one after the other, the exact recursion takes some milliseconds.
_EXACT_WORK = 20_000
_HALVINGS = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Network:
    """Resources that each I/O visits; one row is one sample of the figures, all rows are solved together.

    `demand`: seconds at each resource per I/O, over all visits, shape (rows, resources). `queued`: whether I/Os wait
    for each other there (else it is a delay), `branch`: the OSD that it belongs to, or −1, shape (resources,) each.
    `primaries`: share of the I/Os that begin at each branch, shape (branches,). `forked`: the share of I/Os (writes)
    that are at `copies` branches at once: at its own and, one branch standing for another, at those after it.
    """

    demand: Floats
    queued: npt.NDArray[np.bool_]
    branch: npt.NDArray[np.int64]
    primaries: Floats
    copies: int = 1
    forked: float = 0.0


def harmonic(count: int) -> float:
    """Return 1 + 1/2 + … + 1/count."""
    return sum(1 / n for n in range(1, count + 1))


def seidmann(demand: Floats, servers: Floats) -> tuple[Floats, Floats]:
    """Return the parts of a demand on `servers` that queue at one server, and that are a delay.

    Less than one server (a quota of 0.3 core) is one that is slower.
    """
    queued = demand / servers
    return queued, np.maximum(0.0, demand - queued)


def residence(network: Network, seen: Floats) -> Floats:
    """Return the latency of an I/O that finds the queues `seen`, shape (rows,)."""
    times = network.demand * (1 + np.where(network.queued, seen, 0.0))
    branches = network.primaries.size
    copies = min(network.copies, branches)
    if network.forked <= 0 or copies <= 1:
        return np.asarray(times.sum(axis=1))
    own = np.flatnonzero(network.branch >= 0)
    # Sparse, as each resource is of one branch: of a thousand OSDs, the dense product would take a second.
    inside = times @ sparse.csr_array((np.ones(own.size), (own, network.branch[own])), (times.shape[1], branches))
    near = np.arange(branches)[:, None] + np.arange(copies)
    sets = network.primaries[(near - copies + 1) % branches].sum(axis=1)
    visits = (1 - network.forked) * network.primaries + network.forked * sets
    visit = np.divide(inside, visits, out=np.zeros_like(inside), where=visits > 0)
    power = math.log(copies) / math.log(harmonic(copies))
    longest = (visit**power)[:, near % branches].sum(axis=2) ** (1 / power)
    mean = (1 - network.forked) * visit + network.forked * longest
    return np.asarray(times[:, network.branch < 0].sum(axis=1) + mean @ network.primaries)


def solve(network: Network, customers: int) -> Floats:
    """Return the I/Os a second with `customers` I/Os in flight, shape (rows,)."""
    if customers * network.demand.size > _EXACT_WORK:
        return _schweitzer(network, customers)
    seen, rate = np.zeros_like(network.demand), np.zeros(network.demand.shape[0])
    for count in range(1, customers + 1):
        rate = count / residence(network, seen)
        seen = rate[:, None] * network.demand * (1 + seen)
    return rate


def is_faster(network: Network, customers: int, rate: Floats) -> npt.NDArray[np.bool_]:
    """Return whether `solve` would be above a rate, row by row; where it approximates, without solving."""
    if customers * network.demand.size <= _EXACT_WORK:
        return np.asarray(solve(network, customers) > rate)
    return np.asarray(rate * residence(network, _seen(network, customers, rate)) < customers)


def _schweitzer(network: Network, customers: int) -> Floats:
    """Return the rate where an arrival finds (customers − 1) / customers of each queue.

    The queues are then known from the rate alone, Q = U / (1 − U (N − 1) / N), which is the one unknown left.
    """
    high = customers / residence(network, np.zeros_like(network.demand))
    most = (network.demand * network.queued).max(axis=1, initial=0.0)
    high = np.minimum(high, 1 / np.maximum(most * (customers - 1) / customers, 1e-300))
    return bisect(lambda rate: rate * residence(network, _seen(network, customers, rate)) < customers, high)


def _seen(network: Network, customers: int, rate: Floats) -> Floats:
    """Return the queues that an arrival finds at a rate."""
    use = np.minimum(rate[:, None] * network.demand * (customers - 1) / customers, 1 - 1e-12)
    return np.asarray(use / (1 - use))


def bisect(is_low: Callable[[Floats], npt.NDArray[np.bool_]], high: Floats) -> Floats:
    """Return, row by row, the greatest value of 0 to `high` that is still too low."""
    low = np.zeros_like(high)
    if not high.any():
        return low
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = is_low(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)
