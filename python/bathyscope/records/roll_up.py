"""How rows of one key are joined to one, in SQL, by what the columns of their record say (`column(roll_up=…)`)."""

from __future__ import annotations

import pyarrow as pa


def joined(schema: pa.Schema, rows: str, interval: str = "0") -> str:
    """Return the SELECT of one row for each key and `interval` (SQL) of `rows`, which stands after FROM.

    `schema` is that of a sample. A joined row ends with the last row of its interval, whatever its key, so that rows of
    one interval share their time.
    """
    how = {field.name: (field.metadata or {}).get(b"roll_up", b"key").decode() for field in schema}
    keys = [name for name, rule in how.items() if rule == "key" and name != "at_ns"]
    grouped = [f'"{name}"' for name in keys]
    grouped += [f'{_aggregate(schema.field(name), rule)} AS "{name}"' for name, rule in how.items() if rule != "key"]
    listed = "".join(f'"{name}", ' for name in keys)
    # No column of a record has a name like #interval.
    shared = {name: rule.removeprefix("sum by ") for name, rule in how.items() if rule.startswith("sum by ")}
    replaced = [f'max("{name}") OVER (PARTITION BY "{by}", "#interval") AS "{name}"' for name, by in shared.items()]
    replaced.append('max("#last_ns") OVER (PARTITION BY "#interval") AS at_ns')
    inside = ", ".join(f'"{name}"' for name in ("#last_ns", "#interval", *shared))
    return f"""
        WITH joined AS (
            SELECT {", ".join(grouped)}, max(at_ns) AS "#last_ns", {interval} AS "#interval"
            FROM {rows}
            GROUP BY {listed}"#interval"
        )
        SELECT * EXCLUDE ({inside}), {", ".join(replaced)}
        FROM joined ORDER BY at_ns, {listed.removesuffix(", ")}
    """  # noqa: S608 - names of columns of a record


def _aggregate(field: pa.Field[pa.DataType], rule: str) -> str:
    name = f'"{field.name}"'
    match rule:
        case "sum" | "sum by daemon":
            # fsum keeps the rounding errors of a long sum; integers are added exactly.
            return f"fsum({name})" if pa.types.is_floating(field.type) else f"CAST(sum({name}) AS BIGINT)"
        case "mean":
            there = f"FILTER ({name} IS NOT NULL)"
            weighted = f"fsum({name} * duration_ns) {there} / nullif(sum(duration_ns) {there}, 0)"
            return f"coalesce({weighted}, avg({name}))"
        case "max":
            return f"max({name})"
        case _:
            return f"arg_max({name}, at_ns)"
