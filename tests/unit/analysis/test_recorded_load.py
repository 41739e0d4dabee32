"""What limits clients that were only looked at: an account and a verdict from a recording alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from bathyscope.analysis import recorded_load
from bathyscope.analysis.activity.shape import Question
from bathyscope.errors import AnalysisError
from bathyscope.records import (
    Collection,
    DeviceSample,
    EnvironmentFact,
    ImageIo,
    PerfCounter,
    Placement,
    ProcessSample,
    to_table,
)
from bathyscope.records.finding import PointFinding
from bathyscope.store import duck

SECOND = 10**9
START = 1_700_000_000 * SECOND
LENGTH, COUNT = 5, 12
END = START + LENGTH * COUNT * SECOND
QUESTION = Question("run", "lab", START, END)


def moments() -> list[int]:
    return [START + LENGTH * SECOND * (place + 1) for place in range(COUNT)]


def counters(osd: int, reads: float, latency_s: float) -> list[PerfCounter]:
    """Return what an OSD counts of so many reads a second that take so long each."""
    rows, done, length = [], reads * LENGTH, LENGTH * SECOND
    for at in moments():
        for name, grown in (("op_r", done), ("op_r_out_bytes", done * 4096)):
            rows.append(PerfCounter(at, length, f"osd.{osd}", "osd", name, "counter", grown, None, None))
        for section, name, share in (
            ("osd", "op_r_latency", 1.0), ("osd", "op_r_process_latency", 0.9), ("bluestore", "read_lat", 0.8),
        ):  # fmt: skip
            spent = done * latency_s * share
            rows.append(PerfCounter(at, length, f"osd.{osd}", section, name, "average", spent, round(done), None))
    return rows


def devices(osd: int, limit_ratio: float, reads: float) -> list[DeviceSample]:
    return [
        DeviceSample(
            *(at, LENGTH * SECOND, "localhost", f"sd{osd}", f"osd.{osd}", "ssd"),
            *(round(reads * LENGTH), 0, round(reads * LENGTH * 4096), 0, limit_ratio, limit_ratio, 0.0),
        )
        for at in moments()
    ]


def processes(name: str, cores: float) -> list[ProcessSample]:
    return [ProcessSample(at, LENGTH * SECOND, "localhost", name, cores * LENGTH, 0.0, None, 8) for at in moments()]


def looked(at: int) -> Collection:
    return Collection(at, "perf_counters", 0, 3, 0, 0, True, None)


def recording(
    *, reads: Sequence[float] = (100, 100, 100), limits: Sequence[float] = (0.1, 0.1, 0.1), latency_s: float = 0.01
) -> dict[str, pa.Table]:
    osds = range(len(reads))
    own = [row for osd in osds for row in processes(f"osd.{osd}", 0.2)]
    known = ("bluestore", "16.2", 1, 1.0, 1.0, 1.0)
    return {
        "perf_counter": to_table(PerfCounter, [row for osd in osds for row in counters(osd, reads[osd], latency_s)]),
        "device_sample": to_table(DeviceSample, [row for osd in osds for row in devices(osd, limits[osd], reads[osd])]),
        "process_sample": to_table(ProcessSample, [*processes("host", 1.0), *own]),
        "placement": to_table(
            Placement, [Placement(osd, "node1", "ssd", f"sd{osd}", False, 1 << 40, *known) for osd in osds]
        ),
        "collection": to_table(Collection, [looked(at) for at in (START, *moments())]),
    }


def of(tables: Mapping[str, pa.Table], question: Question = QUESTION) -> PointFinding:
    return recorded_load.build(duck.query_tables(tables, recorded_load.queries(question)), question)


def test_what_clients_did_and_how_much_of_it_was_in_flight() -> None:
    point = of(recording())
    assert point.iops.value == pytest.approx(300)
    assert point.latency_ns_mean.value == pytest.approx(10e6)
    assert point.account is not None
    assert point.account.in_flight.value == pytest.approx(3)
    assert {part.place: round(part.share.value or 0, 2) for part in point.account.parts} == {
        "queue": 0.1, "prepare": 0.1, "store": 0.8,
    }  # fmt: skip


def test_where_nothing_is_used_up_clients_ask_for_no_more() -> None:
    verdict = of(recording()).verdict
    assert verdict.limit == "clients"
    assert "(nearest: the CPU of this machine, 12 % reached" in verdict.sentence


def test_a_device_at_its_throttle_limits_them() -> None:
    verdict = of(recording(reads=(100, 100, 50), limits=(0.97, 0.2, 0.2))).verdict
    assert (verdict.limit, verdict.subject) == ("device", "osd.0")


def test_a_part_of_the_time_is_cut_out() -> None:
    tables, later = recording(), END - START
    quiet = [dataclasses.replace(row, at_ns=row.at_ns + later) for row in counters(0, 0, 0)]
    tables["perf_counter"] = pa.concat_tables([tables["perf_counter"], to_table(PerfCounter, quiet)])
    tables["collection"] = pa.concat_tables([tables["collection"], to_table(Collection, [looked(END + later)])])
    whole = dataclasses.replace(QUESTION, end_ns=END + later)
    assert of(tables, whole).iops.value == pytest.approx(150)
    middle = dataclasses.replace(whole, start_ns=START + 7 * SECOND, end_ns=START + 33 * SECOND)
    assert of(tables, middle).iops.value == pytest.approx(300)


def test_too_little_to_say() -> None:
    verdict = of(recording(reads=(1, 0, 0), latency_s=0.001)).verdict
    assert verdict.limit == "idle"
    assert "cannot tell" in verdict.sentence


def test_nobody_counted() -> None:
    tables = {name: table for name, table in recording().items() if name not in ("perf_counter", "collection")}
    with pytest.raises(AnalysisError, match="nobody counted"):
        of(tables)


def image_io(image: str, reads: float) -> list[ImageIo]:
    done = round(reads * LENGTH)
    place, counted = ("rbd", "", image, f"id-{image}", None, None), (done, 0, done * 4096, 0, done * 4_000_000, 0)
    return [ImageIo(at, LENGTH * SECOND, *place, *counted) for at in moments()]


def test_one_image_of_many() -> None:
    tables = recording() | {"image_io": to_table(ImageIo, [*image_io("vm1", 200), *image_io("vm2", 100)])}
    point = of(tables, dataclasses.replace(QUESTION, image="rbd/vm1"))
    assert point.iops.value == pytest.approx(200)
    assert point.latency_ns_mean.value == pytest.approx(4e6)
    assert point.verdict.sentence.startswith("Clients of rbd/vm1 did 200 IOPS")
    assert of(tables, dataclasses.replace(QUESTION, pool="rbd")).iops.value == pytest.approx(300)
    with pytest.raises(AnalysisError, match="no I/O of the image rbd/vm3"):
        of(tables, dataclasses.replace(QUESTION, image="rbd/vm3"))


def test_an_image_at_its_own_limit_is_named() -> None:
    fact = EnvironmentFact("before", "config client", "rbd_qos_iops_limit", "200")
    tables = recording() | {
        "image_io": to_table(ImageIo, [*image_io("vm1", 199), *image_io("vm2", 100)]),
        "environment": to_table(EnvironmentFact, [fact]),
    }
    verdict = of(tables).verdict
    assert verdict.limit == "image_limit"
    assert "rbd/vm1's rbd_qos_iops_limit is the limit (100 % of 200 I/Os a second)" in verdict.sentence


def test_a_machine_that_only_looks_on_is_none_of_the_clusters() -> None:
    tables = recording()
    busy = [*processes("host", 8.0), *(dataclasses.replace(row, host="node1") for row in processes("host", 1.0))]
    osds = [dataclasses.replace(row, host="node1") for osd in range(3) for row in processes(f"osd.{osd}", 0.2)]
    tables["process_sample"] = to_table(ProcessSample, [*busy, *osds])
    verdict = of(tables).verdict
    assert verdict.limit == "clients"
    assert "the CPU of node1, 12 % reached" in verdict.sentence
