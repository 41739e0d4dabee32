"""What the cluster's configuration allows its clients: the rate of an image, and what a client has in flight.

librbd lets an image do no more than rbd_qos_*_limit I/Os or bytes a second; librados sends no more than
objecter_inflight_ops operations before it has an answer. Both hold a load back while every OSD is idle. Known are
options of the cluster's configuration (`ceph config dump`), not those of a ceph.conf on the machine of the load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from bathyscope.analysis.account.ceilings import ceiling
from bathyscope.analysis.columns import strings, where
from bathyscope.analysis.step_figures import StepFigures
from bathyscope.errors import UsageError
from bathyscope.records import CLIENTS, Step
from bathyscope.records.account import Ceiling, Throttle
from bathyscope.records.figure import Figure
from bathyscope.units import parse_bytes

OPTION = "the option's value"
IN_FLIGHT = "objecter_inflight_ops"
# Option → the direction that it counts (empty: both), and what it counts.
_IMAGE_LIMITS = {
    "rbd_qos_iops_limit": ("", "I/Os"),
    "rbd_qos_read_iops_limit": ("read", "I/Os"),
    "rbd_qos_write_iops_limit": ("write", "I/Os"),
    "rbd_qos_bps_limit": ("", "bytes"),
    "rbd_qos_read_bps_limit": ("read", "bytes"),
    "rbd_qos_write_bps_limit": ("write", "bytes"),
}
# The sections that every client reads; the later one counts.
_SECTIONS = ("config global", "config client")


def client_options(environment: pa.Table) -> dict[str, int]:
    """Return the limits that clients of the cluster have, by option, from the facts before a run."""
    facts = where(environment, moment="before")
    options: dict[str, int] = {}
    for section in _SECTIONS:
        of_section = where(facts, subject=section)
        for name, text in zip(strings(of_section, "name"), strings(of_section, "value"), strict=True):
            if name == IN_FLIGHT or name in _IMAGE_LIMITS:
                options[name] = _number(text)
    return {name: value for name, value in options.items() if value > 0}


def _number(text: str) -> int:
    """Return the value of an option, 0 (which is no limit) where it is not understood."""
    try:
        return parse_bytes(text)
    except UsageError:
        return 0


def image_limits(step: Step, figures: StepFigures, options: Mapping[str, int]) -> Iterator[Ceiling]:
    """Yield the limits of the images under a load; each load process has an image of its own."""
    if step.layer != "rbd":
        return
    rates = {direction.direction: (direction.iops, direction.bandwidth_bytes_per_s) for direction in figures.directions}
    rates |= {"": (figures.iops, figures.bandwidth_bytes_per_s)}
    if not figures.directions:
        rates["read" if figures.read_bytes else "write"] = rates[""]
    of_all = {option: limit * step.jobs for option, limit in options.items()}
    yield from limit_ceilings(of_all, rates, "the image", figures.load_host, figures.iops)


def limit_ceilings(
    options: Mapping[str, int], rates: Mapping[str, tuple[float, float]], image: str, host: str, iops: float
) -> Iterator[Ceiling]:
    """Yield the limits of an image that does I/O; `rates` are its I/Os and bytes a second by direction, "" of both."""
    for option, limit in options.items():
        direction, unit = _IMAGE_LIMITS.get(option, ("", ""))
        used = rates.get(direction, (0.0, 0.0))[0 if unit == "I/Os" else 1]
        if unit and used > 0:
            yield ceiling(
                *("image_limit", option, f"{image}'s {option}", host),
                used=used,
                capacity=limit,
                unit=unit,
                source=OPTION,
                iops=iops,
            )


def client_throttles(step: Step, options: Mapping[str, int]) -> tuple[Throttle, ...]:
    """Return the limit on what a load process has in flight, where the load wants more of it than that.

    The load sends an I/O for each that ends, so what is above the limit always waits.
    """
    limit = options.get(IN_FLIGHT, step.queue_depth)
    # Of clients that were only looked at it is not known what each has in flight.
    if step.osds is None or step.layer == CLIENTS or limit >= step.queue_depth:
        return ()
    held = Figure(1 - limit / step.queue_depth, "ratio")
    return (Throttle("the load generator", IN_FLIGHT, held, limit),)
