"""The account of one step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bathyscope.analysis.account.ceilings import KnownOsd, step_ceilings
from bathyscope.analysis.account.client_options import client_throttles, image_limits
from bathyscope.analysis.account.disk_layer import DiskRate
from bathyscope.analysis.account.osd_shares import osd_shares
from bathyscope.analysis.account.parts import latency_parts
from bathyscope.analysis.account.throttles import throttles
from bathyscope.analysis.columns import Tables, table_of
from bathyscope.analysis.step_figures import StepFigures, osds_of
from bathyscope.records import CLIENTS, Step
from bathyscope.records.account import Account, Ceiling
from bathyscope.records.figure import Figure


def account_of(
    step: Step,
    figures: StepFigures,
    tables: Tables,
    known: Mapping[int, KnownOsd],
    disk: DiskRate | None = None,
    *,
    options: Mapping[str, int] | None = None,
    limits: Iterable[Ceiling] = (),
) -> Account:
    """Return the account of a step from its own tables, as `window.tables` gives them; `known`: of the OSDs.

    `disk`: see `step_ceilings`; `options`: see `client_options`; `limits`: ceilings that are known besides.
    """
    perf, under_test = table_of(tables, "perf_counter"), osds_of(step)
    osds = None if under_test is None else {osd: known.get(osd, KnownOsd()) for osd in under_test}
    directions = [name for name, moved in (("read", figures.read_bytes), ("write", figures.write_bytes)) if moved]
    latency_ns = figures.latency_ns_mean
    # The counters hold the ramp as well.
    load_s = max(figures.runtime_s, (step.ended_ns - step.started_ns) / 1e9)
    return Account(
        concurrency=step.queue_depth * step.jobs,
        iops=Figure(figures.iops, "1/s"),
        latency_ns=Figure(latency_ns, "ns"),
        in_flight=Figure(figures.iops * latency_ns / 1e9 if latency_ns else None, "I/Os"),
        ceilings=step_ceilings(
            step, figures, perf, osds, disk, more=(*image_limits(step, figures, options or {}), *limits)
        ),
        parts=latency_parts(
            perf,
            osds,
            latency_ns,
            directions=directions,
            ios=figures.iops * load_s,
            # The latency of a recording ends at the OSDs.
            rest="inside" if step.layer == CLIENTS else "outside",
        ),
        foreign=figures.foreign,
        throttles=(*client_throttles(step, options or {}), *throttles(perf, under_test)),
        other_cores=Figure(_other_cores(figures), "cores"),
        osds=osd_shares(perf, osds, reads="read" in directions, writes="write" in directions),
    )


def _other_cores(figures: StepFigures) -> float | None:
    """Return what is used of the machine of the load by neither the load nor OSDs under test."""
    if figures.host_cpu_ratio is None or not figures.host_processors:
        return None
    whole = figures.host_cpu_ratio * figures.host_processors
    return max(0.0, whole - (figures.osd_cores_here or 0.0) - (figures.client_cores or 0.0))
