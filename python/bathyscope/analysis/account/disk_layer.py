"""What one disk alone gave in the disk layer of a run: the capacity of the devices of its class.

Both sides are counted by the kernel, in requests to the device and in bytes: a load generator's I/O of 4 MiB is several
requests. A disk that was held back (by a rate, or by a load generator without a processor to spare) shows no capacity,
and neither does one that had fewer I/Os in flight than an OSD's device has under the load.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from bathyscope.analysis.step_figures import StepFigures, rate_iops_of
from bathyscope.analysis.trust import CLIENT_THREAD_LIMIT
from bathyscope.records import Step


@dataclasses.dataclass(frozen=True, slots=True)
class DiskRate:
    """What a disk gave: requests and bytes a second."""

    requests_per_s: float
    bytes_per_s: float


class DiskLayer:
    """The disk layer of a run."""

    def __init__(self, steps: Iterable[tuple[Step, StepFigures]]) -> None:
        self._rates: dict[tuple[str, str, int], list[tuple[int, DiskRate]]] = {}
        for step, figures in steps:
            held_back = rate_iops_of(step) or (figures.client_thread_busy or 0.0) >= CLIENT_THREAD_LIMIT
            for device in figures.devices if not held_back else ():
                requests = device.read_iops + device.write_iops
                rate = DiskRate(requests, device.read_bytes_per_s + device.write_bytes_per_s)
                if requests > 0:
                    self._rates.setdefault(_load_of(step), []).append((step.queue_depth * step.jobs, rate))

    def of(self, step: Step, osd_count: int) -> DiskRate | None:
        """Return the most that a disk gave under the same pattern, with at least as much in flight as an OSD has."""
        least = step.queue_depth * step.jobs / max(1, osd_count)
        rates = [rate for in_flight, rate in self._rates.get(_load_of(step), ()) if in_flight >= least]
        if not rates:
            return None
        return DiskRate(max(rate.requests_per_s for rate in rates), max(rate.bytes_per_s for rate in rates))


def _load_of(step: Step) -> tuple[str, str, int]:
    return step.device_class, step.op, step.block_size_bytes
