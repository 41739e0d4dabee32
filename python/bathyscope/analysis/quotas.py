"""What control groups allow, over a window: processor quotas, and the limits of devices."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.columns import Floats, floats, where

_DIRECTIONS = ("read", "write")
_DEVICE = ["host", "device", "at_ns"]
# Beyond every window: the nearest sample, however far.
_ANY_NS = 1 << 62


@dataclasses.dataclass(frozen=True, slots=True)
class QuotaUse:
    """A process with a processor quota. The quota is its group's: other members use it up, too.

    `used_ratio` is what the process itself used of it, `throttled_ratio` the share of the quota's periods in which it
    was used up, `throttled_cores` how many processors had threads that waited for the next period, on average.
    None: not known.
    """

    host: str
    process: str
    quota_cores: float
    used_ratio: float | None
    throttled_ratio: float | None
    throttled_cores: float | None


def quota_uses(cgroups: pa.Table, processes: pa.Table) -> tuple[QuotaUse, ...]:
    """Return the processes with a quota, from `cgroup_sample` and `process_sample` of one window, by machine."""
    limited = cgroups.filter(pc.is_valid(cgroups.column("cpu_quota_cores")))
    if limited.num_rows == 0:
        return ()
    length = floats(limited, "duration_ns") / 1e9
    throttled = floats(limited, "cpu_throttled_s")
    weighed: dict[str, Floats] = {
        "allowed": floats(limited, "cpu_quota_cores") * length,
        "length": length,
        "throttled": throttled,
        # The time in which it is known.
        "counted": np.where(np.isfinite(throttled), length, 0.0),
        "periods": floats(limited, "cpu_period_count"),
        "used_up": floats(limited, "cpu_throttled_period_count"),
    }
    keys = {name: limited.column(name) for name in ("host", "process")}
    table = pa.table(keys | {name: pa.array(np.nan_to_num(values)) for name, values in weighed.items()})
    grouped = table.group_by(list(keys), use_threads=False).aggregate([(name, "sum") for name in weighed])
    quotas = []
    for row in grouped.sort_by([(name, "ascending") for name in keys]).to_pylist():
        cores = row["allowed_sum"] / row["length_sum"]
        used = _cores(where(processes, host=row["host"], process=row["process"]))
        quotas.append(
            QuotaUse(
                host=row["host"],
                process=row["process"],
                quota_cores=cores,
                used_ratio=None if used is None else used / cores,
                throttled_ratio=row["used_up_sum"] / row["periods_sum"] if row["periods_sum"] else None,
                throttled_cores=row["throttled_sum"] / row["counted_sum"] if row["counted_sum"] else None,
            )
        )
    return tuple(quotas)


def _cores(process: pa.Table) -> float | None:
    if process.num_rows == 0:
        return None
    used = floats(process, "cpu_user_s") + floats(process, "cpu_system_s")
    return float(used.sum() / (floats(process, "duration_ns").sum() / 1e9))


def with_limits(devices: pa.Table, cgroups: pa.Table) -> pa.Table:
    """Return rows of `device_sample` with the shares of the limits that control groups put on the devices.

    Where a control group limits a device, that is what holds it back, and not what a lab once set; the group's own
    count of requests is of those before they are merged, as the limit is. All other rows stay as they are. Rows come in
    the order of time.
    """
    limits = _limits(cgroups)
    if limits.num_rows == 0 or devices.num_rows == 0:
        return devices
    # The interval in which a row ends; behind the last one, that one.
    rows = devices.sort_by("at_ns")
    places = rows.select(_DEVICE).append_column("row", pa.array(np.arange(rows.num_rows)))
    near = [places.join_asof(limits, "at_ns", _DEVICE[:2], way).sort_by("row") for way in (_ANY_NS, -_ANY_NS)]
    values = {
        name: floats(pa.table({name: pc.coalesce(*(table.column(name) for table in near))}), name)
        for name in limits.column_names[len(_DEVICE) :]
    }
    seconds = floats(rows, "duration_ns") / 1e9
    for direction in _DIRECTIONS:
        share = values[f"{direction}_share"]
        completed = floats(rows, f"{direction}_count") / seconds / values[f"{direction}_iops_limit"]
        moved = floats(rows, f"{direction}_bytes") / seconds / values[f"{direction}_bytes_per_s_limit"]
        by_group = np.fmax(np.where(np.isfinite(share), share, completed), moved)
        name = f"{direction}_limit_ratio"
        ratio = np.where(np.isfinite(by_group), by_group, floats(rows, name))
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(ratio, mask=~np.isfinite(ratio)))
    return rows


def _limits(cgroups: pa.Table) -> pa.Table:
    """Return (host, device, at_ns), the limits then, and the shares of them that the groups' own counts are.

    Of several groups with a device, the one that is nearest to its limit counts. They share the device, so the bytes of
    one of them are not known, and a limit of bytes tells nothing.
    """
    rows = cgroups.filter(pc.not_equal(cgroups.column("device"), pa.scalar("")))
    named = [f"{direction}_{kind}_limit" for direction in _DIRECTIONS for kind in ("iops", "bytes_per_s")]
    seconds = floats(rows, "duration_ns") / 1e9
    for direction in _DIRECTIONS:
        share = floats(rows, f"{direction}_request_count") / seconds / floats(rows, f"{direction}_iops_limit")
        rows = rows.append_column(f"{direction}_share", pa.array(share, mask=~np.isfinite(share)))
    shares = [f"{direction}_share" for direction in _DIRECTIONS]
    summed = rows.group_by(_DEVICE, use_threads=False).aggregate(
        [*((name, "min") for name in named), *((name, "max") for name in shares), ("process", "count")]
    )
    alone = pc.equal(summed.column("process_count"), pa.scalar(1))
    columns = {name: summed.column(name) for name in _DEVICE}
    for name in named:
        limit = summed.column(f"{name}_min")
        columns[name] = limit if "iops" in name else pc.if_else(alone, limit, None)
    columns |= {name: summed.column(f"{name}_max") for name in shares}
    return pa.table(columns).sort_by("at_ns")
