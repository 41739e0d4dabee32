"""A run of single operations, as an imported log makes it: every view of it, and its page."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bathyscope.analysis.activity import VIEWS
from bathyscope.commands.analyze import finding_of_view
from bathyscope.commands.import_ import SEGMENT_OPS
from bathyscope.commands.report import finding_of, write_page
from bathyscope.rbd_names import image_columns
from bathyscope.records import Image, Op, Placement, build_table, to_table
from bathyscope.store import RunDirectory, Workspace

SECOND_NS = 10**9
START_NS = 1_790_000_000 * SECOND_NS
OPS_PER_S = 20_000
BATCH_OPS = 100_000
OSDS, NODES, IMAGES, CLIENTS, PGS = 240, 12, 2_000, 300, 4_096
OBJECTS_PER_IMAGE = 10_240
OBJECT_BYTES = 4 << 20


def main(ops: int, directory: Path | None) -> Mapping[str, float]:
    """Return the seconds of each view, of the clock and of processors, and the peak of memory after it."""
    with tempfile.TemporaryDirectory(dir=directory) as made:
        return measure(Path(made), ops)


def measure(directory: Path, count: int) -> Mapping[str, float]:
    found: dict[str, float] = {"ops": count, "imports_mib": peak_mib()}
    started = time.perf_counter()
    run = written(directory, count)
    found["write_s"], found["write_mib"] = round(time.perf_counter() - started, 2), peak_mib()
    found["run_mib"] = round(sum(path.stat().st_size for path in run.path.rglob("*.parquet")) / 2**20, 1)
    asked(run, found, directory)
    return found


def asked(run: RunDirectory, found: dict[str, float], directory: Path) -> None:
    """Ask for every view of a run and for its page; add what each took to `found`."""
    for name, view in VIEWS.items():
        image = image_id(0) if view.of_image else None
        finding = timed(found, name, lambda name=name, image=image: finding_of_view(run, name, image=image))
        assert finding.tables[0].rows or name in {"timeline", "health", "caches"}, name
    finding = timed(found, "report", lambda: finding_of(run))
    page = timed(found, "page", lambda: write_page(finding, directory / "report.html"))
    found["page_file_mib"] = round(page.stat().st_size / 2**20, 2)


def timed(found: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    started, started_cpu = time.perf_counter(), time.process_time()
    answer = work()
    found[f"{name}_s"] = round(time.perf_counter() - started, 2)
    found[f"{name}_cpu_s"] = round(time.process_time() - started_cpu, 2)
    found[f"{name}_mib"] = peak_mib()
    return answer


def written(directory: Path, count: int) -> RunDirectory:
    """Return a run of so many operations."""
    context = {"imported_from": ["made up"]}
    with Workspace(directory).create_run(kind="collect", started_ns=START_NS, context=context) as run:
        with run.begin_segment("about") as segment:
            segment.table(Placement, to_table(Placement, placements()))
            segment.table(Image, to_table(Image, images()))
            segment.commit()
        random, made = np.random.default_rng(1), 0
        while made < count:
            with run.begin_segment(f"import-{made // SEGMENT_OPS:05d}") as segment:
                for first in range(made, min(count, made + SEGMENT_OPS), BATCH_OPS):
                    segment.table(Op, ops(random, first, min(BATCH_OPS, count - first)))
                segment.commit()
            made += SEGMENT_OPS
        run.update(status="done", ended_ns=START_NS + SECOND_NS)
    return Workspace(directory).open_run("last")


def placements() -> Iterator[Placement]:
    for osd in range(OSDS):
        yield Placement(
            osd, f"node{osd % NODES}", "ssd", None, None, None, None, None, None, reweight=1.0, crush_weight=1.0
        )


def images() -> Iterator[Image]:
    size_bytes = OBJECTS_PER_IMAGE * OBJECT_BYTES
    for number in range(IMAGES):
        name, known = f"vm-{number}", (size_bytes, OBJECT_BYTES, OBJECT_BYTES, 1, None, None)
        yield Image(START_NS, "pool 2", "", name, image_id(number), *known)


def image_id(number: int) -> str:
    return f"5e6b{number:08x}"


def ops(random: np.random.Generator, first: int, count: int) -> pa.Table:
    """Return operations of many images: few of them busy, each with a hot tenth that moves over time."""
    place = np.arange(first, first + count)
    image = np.minimum(random.zipf(1.3, count) - 1, IMAGES - 1)
    hot = random.random(count) < 0.8
    drift = place // (OPS_PER_S * 10) * 64
    within = np.where(hot, random.integers(0, OBJECTS_PER_IMAGE // 10, count), random.integers(0, 1 << 40, count))
    number = (image * 977 + drift + within) % OBJECTS_PER_IMAGE
    pg = (image * 31 + number * 7) % PGS
    client, object_name = image % CLIENTS, object_names(image, number)
    return build_table(
        Op,
        {
            "osd": pg % OSDS,
            "client": names("client.", client + 4000),
            "client_address": names("10.0.0.", client),
            "pool_id": 2,
            "pg": names("2.", pg),
            "object_name": object_name,
            "op": pa.array(["read", "write", "other"]).take(pa.array(random.choice(3, count, p=(0.6, 0.38, 0.02)))),
            "offset_bytes": random.integers(0, 1024, count) * 4096,
            "length_bytes": random.choice((4096, 16384, 65536), count),
            "started_ns": START_NS + place * (SECOND_NS // OPS_PER_S),
            "duration_ns": random.lognormal(13, 1, count).astype(np.int64),
            "complete_sample": True,
            "complete_since_ns": START_NS,
            **image_columns(object_name),
        },
    )


def names(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(numbers).cast(pa.string()), "")


def object_names(image: np.ndarray, number: np.ndarray) -> pa.Array:
    """Return rbd_data.IMAGE.NUMBER of each."""
    digits = pa.array([f"{value:016x}" for value in range(OBJECTS_PER_IMAGE)])
    starts = pa.array([f"rbd_data.{image_id(value)}." for value in range(IMAGES)])
    return pc.binary_join_element_wise(starts.take(pa.array(image)), digits.take(pa.array(number)), "")


def peak_mib() -> float:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match is not None
    return round(int(match[1]) / 1024, 1)
