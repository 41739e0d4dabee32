"""What every source has in common. That a source is one file is shown by recording/test_one_more_source."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sources import test_attachment_file, test_csi, test_libvirt
from tests.unit.sources.test_cgroups import NESTED, recorded_groups
from tests.unit.sources.test_machine import answers_of
from tests.unit.sources.test_node_exporter import recorded_series
from tests.unit.sources.test_nodes import node_answers
from tests.unit.sources.test_proc import recorded_load

from bathyscope.errors import ParseError
from bathyscope.records import RawAnswer, schema_of
from bathyscope.sources import SOURCES, cluster_map, csi, exporters, facts, images, node_exporter, perf_counters
from bathyscope.sources.shape import Source, spread
from bathyscope.spec import Target
from bathyscope.spec.scope import Scope

Recorded = Callable[[str], list[RawAnswer]]
SCOPE = Scope(target=Target(name="t"))


def test_every_source_is_found_by_its_name() -> None:
    assert list(SOURCES) == [
        *(
            "attachment_file",
            "caches",
            "cgroups",
            "cluster_map",
            "cluster_status",
            "csi",
            "exporters",
            "image_counters",
        ),
        *("image_usage", "images", "libvirt", "machine", "mgr_counters", "node_exporter", "node_proc", "nodes"),
        *("op_history", "osd_latency_histograms", "perf_counters", "pg_map", "pg_stats", "proc", "simulated_disks"),
        *("tenants", "watchers"),
    ]
    assert all(name == source.name for name, source in SOURCES.items())


@pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))
def test_without_answers_every_table_is_there_and_empty(source: Source) -> None:
    tables = source.parse([], SCOPE)
    assert set(tables) == set(source.records)
    for record, table in tables.items():
        assert table.schema == schema_of(record)
        assert table.num_rows == 0
    assert source.period_s > 0
    assert source.timeout_s > 0
    labels = [request.label for request in source.plan(SCOPE)]
    assert len(set(labels)) == len(labels)


def known_answers(recorded: Recorded, name: str) -> tuple[list[RawAnswer], Scope]:
    """Return recorded answers of a source and their scope."""
    if name == "proc":
        readings, scope, _ = recorded_load(recorded)
        return [*readings[:3], readings[-1]], scope
    if name == "cgroups":
        return recorded_groups("linux-6.1/v2-nested.txt"), NESTED
    whole: dict[str, Callable[[], list[RawAnswer]]] = {
        "machine": lambda: answers_of(recorded, "16.2.15"),
        "attachment_file": lambda: [test_attachment_file.answer(b"image,address,host,vm\nrbd/a,10.0.0.1,kvm1,web\n")],
        "csi": lambda: [test_csi.one_pod()],
        "libvirt": lambda: [test_libvirt.answer(test_libvirt.DOMAIN, test_libvirt.SHUT_OFF)],
    }
    if name in whole:
        return whole[name](), SCOPE
    if name in ("nodes", "node_proc"):
        return node_answers(name)
    if name in ("exporters", "node_exporter"):
        return recorded_series(recorded)
    paths = {
        "caches": ("caches/0.1/an-osd-and-a-directory",),
        "cluster_map": ("environment/20.2.4/answers", "perf_dump/20.2.4/schema"),
        "cluster_status": ("environment/16.2.15/answers",),
        "image_usage": ("rbd_usage/16.2.15/full",),
        "image_counters": ("image_counters/16.2.15/two-images",),
        "mgr_counters": ("mgr_counters/16.2.15/two-clients",),
        "images": ("images/16.2.15/pools",),
        "op_history": ("op_history/16.2.15/three-replicas",),
        "perf_counters": ("perf_dump/16.2.15/before", "perf_dump/16.2.15/after"),
        "pg_map": ("pg_map/16.2.15/five-places",),
        "pg_stats": ("pg_stats/16.2.15/two-images",),
        "simulated_disks": ("simulated_disks/0.1/two-disks",),
        "tenants": ("tenants/16.2.15/beside-a-load",),
        "watchers": ("images/16.2.15/watchers",),
        "osd_latency_histograms": ("osd_histograms/16.2.15/before", "osd_histograms/16.2.15/after"),
    }
    answers = [answer for path in paths[name] for answer in recorded(path)]
    if name == "cluster_status":
        answers = [answer for answer in answers if answer.label in ("status", "health", "osd_perf")]
    if name == "pg_stats":
        # Three groups of each look are enough to break.
        answers = [dataclasses.replace(answer, stdout=few_groups(answer)) for answer in answers]
    if name == "op_history":
        few = {**answers[0].json(), "ops": answers[0].json()["ops"][-12:]}
        answers = [dataclasses.replace(answers[0], stdout=json.dumps(few).encode())]
    return answers, SCOPE


def few_groups(answer: RawAnswer) -> bytes:
    value = answer.json()
    return json.dumps(value | {"pg_stats": value["pg_stats"][-3:]}).encode()


def broken(answer: RawAnswer, break_: Callable[[bytes], bytes], data: st.DataObject) -> RawAnswer:
    """Return the answer with its JSON, or one of its files, broken."""
    if answer.files:
        place = data.draw(st.integers(0, len(answer.files) - 1))
        files = [(path, break_(text) if n == place else text) for n, (path, text) in enumerate(answer.files)]
        return dataclasses.replace(answer, files=tuple(files))
    try:
        content = json.dumps(json.loads(answer.stdout), indent=1).encode()
    except ValueError:
        content = answer.stdout
    return dataclasses.replace(answer, stdout=break_(content))


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_broken_answers_are_parse_errors_and_nothing_else(
    recorded: Recorded, mutate: Callable[[bytes, st.DataObject], bytes], name: str, data: st.DataObject
) -> None:
    answers, scope = known_answers(recorded, name)
    index = data.draw(st.integers(0, len(answers) - 1))
    answers[index] = broken(answers[index], lambda content: mutate(content, data), data)
    facts.redacted(answers[index])
    readers: dict[str, Callable[[], object]] = {
        "cluster_map": lambda: (cluster_map.scope_of(answers, scope.target), cluster_map.still_true(answers, answers)),
        "csi": lambda: csi.compact(answers[0]),
        "images": lambda: images.caveats(answers),
        "exporters": lambda: (exporters.exporters_of(answers, scope), exporters.caveats(answers, scope)),
        "node_exporter": lambda: node_exporter.in_window(answers, scope, 0, 2**62),
        "perf_counters": lambda: perf_counters.restarted(answers),
    }
    for read in (lambda: SOURCES[name].parse(answers, scope), readers.get(name, list)):
        try:
            read()
        except ParseError:
            continue


def test_a_few_of_many_are_spread_evenly() -> None:
    assert spread([3, 1, 2], 3) == [1, 2, 3]
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert spread([], 5) == []
