"""Blocks of a ladder that are pictures of their own: rungs, ceilings, distributions, stages, time series."""

from __future__ import annotations

import dataclasses

from bathyscope.records.account import Account
from bathyscope.records.blocks import Table
from bathyscope.records.finding import Distribution, LayerView, Series, StageShare


@dataclasses.dataclass(frozen=True, slots=True)
class Rungs:
    """A picture of tables, one for each pattern: their column `figure`, which is a `measure`, with its intervals.

    A row is of a `layer`; one with a `refusal` has that in place of its figure. The axis holds the figures of
    `all_tables`, so that pictures can be compared.
    """

    name: str
    title: str
    figure: str
    measure: str
    tables: tuple[Table, ...]
    all_tables: tuple[Table, ...]
    layers: tuple[LayerView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Ceilings:
    """A picture of an account: its ceilings as lines, the measured rate below them, its latency as a bar."""

    name: str
    title: str
    account: Account
    layer: LayerView
    layers: tuple[LayerView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Distributions:
    """A picture of the latency distributions of the layers of one pattern."""

    name: str
    title: str
    lines: tuple[Distribution, ...]
    layers: tuple[LayerView, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class StageBar:
    """Where the operations of a load spent their time inside the OSDs: its pattern and layer in words."""

    pattern: str
    layer: str
    stages: tuple[StageShare, ...]
    sample_count: int


@dataclasses.dataclass(frozen=True, slots=True)
class Stages:
    """A picture of shares of time: a bar for each load, those of one pattern below its heading."""

    name: str
    title: str
    bars: tuple[StageBar, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSeries:
    """A picture of one measure of a load over time: a line for each repeat and subject."""

    name: str
    title: str
    measure: str
    series: tuple[Series, ...]
    layers: tuple[LayerView, ...]
