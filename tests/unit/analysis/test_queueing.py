"""Closed networks: mean value analysis against closed forms, a textbook's figures, and simulations event by event."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.analysis.network_simulation import simulated_rate

from bathyscope.analysis import queueing
from bathyscope.analysis.columns import Floats
from bathyscope.analysis.queueing import Network, harmonic, residence, seidmann, solve

TIMES = st.floats(1e-4, 1.0)


def network(
    *demand: float,
    delay: float = 0.0,
    branch: tuple[int, ...] = (),
    primaries: tuple[float, ...] = (),
    copies: int = 1,
    delays: tuple[float, ...] = (),
) -> Network:
    """Return a network of one row; `delays` belong to the branches in their order, `delay` to every I/O."""
    count = len(demand)
    return Network(
        np.array([[*demand, delay, *delays]]),
        np.array([True] * count + [False] * (1 + len(delays))),
        np.array([*(branch or (-1,) * count), -1, *range(len(delays))]),
        np.array(primaries),
        copies,
        1.0 if copies > 1 else 0.0,
    )


def machine_repairman(customers: int, service: float, think: float) -> float:
    """Return the rate of M/M/1//N by the state probabilities of its birth-and-death process."""
    weights = [math.perm(customers, broken) * (service / think) ** broken for broken in range(customers + 1)]
    return (1 - weights[0] / sum(weights)) / service


def convolution(customers: int, demand: list[float], think: float) -> float:
    """Return the rate by Buzen's convolution (1973), which is another algorithm than mean value analysis."""
    g = [1.0]
    for n in range(1, customers + 1):
        g.append(g[-1] * think / n)
    for one in demand:
        for n in range(1, customers + 1):
            g[n] += one * g[n - 1]
    return g[customers - 1] / g[customers]


@pytest.mark.parametrize("customers", [1, 2, 16, 100])
@pytest.mark.parametrize("stations", [1, 3, 12])
def test_a_balanced_network(customers: int, stations: int) -> None:
    rate = solve(network(*[0.01] * stations), customers)[0]
    assert rate == pytest.approx(customers / (0.01 * (customers + stations - 1)), rel=1e-9)


@pytest.mark.parametrize("customers", [1, 4, 20, 100])
@pytest.mark.parametrize("think", [0.05, 1.0])
def test_the_machine_repairman(customers: int, think: float) -> None:
    assert solve(network(0.02, delay=think), customers)[0] == pytest.approx(
        machine_repairman(customers, 0.02, think), rel=1e-9
    )


def test_a_textbook_network() -> None:
    # Lazowska et al. 1984, chapter 6: demands 0.605, 2.1 and 1.35 s, think time 15 s, three customers: 0.152 a second.
    rate = solve(network(0.605, 2.1, 1.35, delay=15.0), 3)[0]
    assert rate == pytest.approx(convolution(3, [0.605, 2.1, 1.35], 15.0), rel=1e-9)
    assert rate == pytest.approx(0.152, abs=0.0005)


@given(st.lists(TIMES, min_size=1, max_size=6), TIMES, st.integers(1, 60))
def test_mean_value_analysis_is_convolution(demand: list[float], think: float, customers: int) -> None:
    assert solve(network(*demand, delay=think), customers)[0] == pytest.approx(
        convolution(customers, demand, think), rel=1e-7
    )


@given(st.lists(TIMES, min_size=1, max_size=6), TIMES, st.integers(2, 60))
def test_the_approximation_for_many_customers_is_near(demand: list[float], think: float, customers: int) -> None:
    exact = convolution(customers, demand, think)
    assert queueing._schweitzer(network(*demand, delay=think), customers)[0] == pytest.approx(exact, rel=0.12)


def test_many_customers_are_approximated_and_near() -> None:
    demand = [1.0, 0.6, 0.2] * 30
    rate = solve(network(*demand), 400)[0]
    assert 400 * len(demand) > queueing._EXACT_WORK
    assert rate == pytest.approx(convolution(400, demand, 0.0), rel=0.01)


def bounds(network: Network, customers: int) -> tuple[Floats, Floats]:
    """Return the asymptotic bounds of the rate (Denning and Buzen 1978), whatever the services' distributions are.

    At most, no I/O waits for another, or one resource is always busy; at least, each waits for all others everywhere.
    """
    alone = customers / residence(network, np.zeros_like(network.demand))
    most = (network.demand * network.queued).max(axis=1, initial=0.0)
    least = customers / residence(network, np.full_like(network.demand, customers - 1.0))
    return least, np.minimum(alone, 1 / np.maximum(most, 1e-300))


@given(st.lists(TIMES, min_size=1, max_size=6), TIMES, st.integers(1, 60))
def test_no_rate_is_outside_of_the_asymptotic_bounds(demand: list[float], think: float, customers: int) -> None:
    one = network(*demand, delay=think)
    low, high = bounds(one, customers)
    assert low[0] * (1 - 1e-9) <= solve(one, customers)[0] <= high[0] * (1 + 1e-9)
    assert high[0] <= 1 / max(demand) * (1 + 1e-9)


def test_rows_do_not_know_each_other() -> None:
    demand = np.array([[0.01, 0.02, 0.005], [0.3, 0.001, 0.01]])
    both = Network(demand, np.array([True, True, False]), np.full(3, -1), np.array([]))
    assert solve(both, 8) == pytest.approx([convolution(8, list(row[:2]), row[2]) for row in demand])


@pytest.mark.parametrize("customers", [1, 6, 24])
def test_a_simulation_of_three_stations(customers: int) -> None:
    stations = (0.004, 0.007, 0.002)
    shares = (0.5, 0.3, 0.2)
    simulated = simulated_rate(customers, [[(mean, 1)] for mean in stations], shares, delay_s=0.01)
    demand = [mean * share for mean, share in zip(stations, shares, strict=True)]
    model = network(*demand, delay=0.01, branch=(0, 1, 2), primaries=shares)
    assert solve(model, customers)[0] == pytest.approx(simulated, rel=0.02)


@pytest.mark.parametrize("customers", [1, 3, 8, 32])
def test_a_simulation_of_several_servers(customers: int) -> None:
    simulated = simulated_rate(customers, [[(0.008, 2), (0.002, 1)]], [1.0])
    queued, alone = seidmann(np.array([0.008]), np.array([2.0]))
    assert queued + alone == pytest.approx(0.008)
    rate = solve(network(queued[0], 0.002, delay=alone[0]), customers)[0]
    # Seidmann's approximation is exact for one customer and for very many.
    assert rate == pytest.approx(simulated, rel=0.02 if customers in {1, 32} else 0.1)


def test_half_a_server_is_a_slow_one() -> None:
    queued, alone = seidmann(np.array([0.001]), np.array([0.5]))
    assert (queued[0], alone[0]) == (pytest.approx(0.002), 0.0)


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("customers", [1, 4, 16, 64])
def test_a_simulation_of_writes_to_several_osds(customers: int, copies: int) -> None:
    shares = (1 / 3,) * 3
    simulated = simulated_rate(customers, [[(0.005, 1)]] * 3, shares, copies=copies)
    visits = copies / 3
    model = network(*[0.005 * visits] * 3, branch=(0, 1, 2), primaries=shares, copies=copies)
    assert solve(model, customers)[0] == pytest.approx(simulated, rel=0.12)


def test_writes_wait_for_one_slow_osd() -> None:
    shares = (1 / 3,) * 3
    simulated = simulated_rate(16, [[(0.001, 1)], [(0.001, 1)], [(0.02, 1)]], shares, copies=3, ends=20_000)
    model = network(0.001, 0.001, 0.02, branch=(0, 1, 2), primaries=shares, copies=3)
    assert solve(model, 16)[0] == pytest.approx(simulated, rel=0.02)


def test_one_write_alone_takes_the_longest_of_its_copies() -> None:
    model = network(0.005, 0.005, 0.005, branch=(0, 1, 2), primaries=(1 / 3,) * 3, copies=3)
    assert 1 / solve(model, 1)[0] == pytest.approx(0.005 * harmonic(3))
