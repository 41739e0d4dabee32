"""The network of each machine over a window: bytes in and out, and the share of its links' speed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa

from bathyscope.analysis.columns import floats, strings

_COUNTS = ("receive_errors", "transmit_errors", "receive_drops", "transmit_drops")


@dataclasses.dataclass(frozen=True, slots=True)
class NetworkUse:
    """One machine. `link_ratio` (0 to 1) is of its busiest interface in its busier direction; None: no speed is known.

    `lost_packets` were in error or dropped, where that was counted.
    """

    host: str
    receive_bytes_per_s: float
    transmit_bytes_per_s: float
    link_ratio: float | None
    lost_packets: float


def network_uses(samples: pa.Table) -> tuple[NetworkUse, ...]:
    """Return the machines of a `network_sample` table by name, all interfaces of each together."""
    if samples.num_rows == 0:
        return ()
    summed = ("duration_ns", "receive_bytes", "transmit_bytes", *_COUNTS)
    grouped = samples.group_by(["host", "interface"], use_threads=False).aggregate(
        [*((name, "sum") for name in summed), ("speed_bits_per_s", "max")]
    )
    sums = {name: floats(grouped, f"{name}_sum") for name in summed}
    seconds = sums["duration_ns"] / 1e9
    received, sent = sums["receive_bytes"] / seconds, sums["transmit_bytes"] / seconds
    use = np.maximum(received, sent) * 8 / floats(grouped, "speed_bits_per_s_max")
    lost = np.nansum([sums[name] for name in _COUNTS], axis=0)
    hosts = np.array(strings(grouped, "host"))
    uses = []
    for host in np.unique(hosts):
        of_host = hosts == host
        known = use[of_host][np.isfinite(use[of_host])]
        uses.append(
            NetworkUse(
                str(host),
                float(received[of_host].sum()),
                float(sent[of_host].sum()),
                float(known.max()) if known.size else None,
                float(lost[of_host].sum()),
            )
        )
    return tuple(uses)
