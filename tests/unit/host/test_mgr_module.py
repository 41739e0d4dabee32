"""The manager's module against a scripted manager: what it asks of the OSDs, what it adds up, what it gives up."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import logging
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.waiting import until

import bathyscope.host

SOURCE = Path(bathyscope.host.__file__).with_name("mgr_module.py")
VERSION = "ceph version 16.2.15 (618f) pacific (stable)"


class Manager:
    """What a module sees of the manager: `reports` are what the OSDs have sent since the last get, by query."""

    def __init__(self, *_: Any) -> None:
        self.version = VERSION
        self.log = logging.getLogger("module")
        self.options = {"mgr_stats_period": "5"}
        self.osds: dict[str, dict[str, str]] = {"0": {"ceph_version": VERSION}}
        self.queries: dict[int, dict[str, Any]] = {}
        self.reports: dict[int, list[Any]] = {}
        self.numbers = itertools.count()
        self.get_takes_s = 0.0

    def get(self, name: str) -> Any:
        return {"osd_metadata": self.osds}[name]

    def get_ceph_option(self, name: str) -> str:
        return self.options[name]

    def add_osd_perf_query(self, query: dict[str, Any]) -> int:
        number = next(self.numbers)
        self.queries[number] = query
        return number

    def remove_osd_perf_query(self, number: int) -> None:
        del self.queries[number]

    def get_osd_perf_counters(self, number: int) -> dict[str, Any]:
        CLOCK[0] += self.get_takes_s
        return {"counters": self.reports.pop(number, [])}

    # --- for tests

    def number_of(self, kind: str, count: int) -> int:
        """Return the query with a key of this type and `count` parts."""
        (number,) = [
            number
            for number, query in self.queries.items()
            if kind in (part["type"] for part in query["key_descriptor"]) and len(query["key_descriptor"]) == count
        ]
        return number

    def report_image(self, client: int, image: str, writes: int, header: str = "", pool: int = 2) -> None:
        key = [["", str(client)], ["10.0.0.1"], [str(pool)], [""], [header, image]]
        all_ns = [10**6 * writes + 10**5, writes + 1]
        values = [[writes, 0], [writes + 1, 0], [4096 * writes, 0], [512, 0], [10**6 * writes, writes], all_ns]
        self.reports.setdefault(self.number_of("client_id", 5), []).append({"k": key, "c": values})

    def report_zone(self, osd: int, image: str, digits: str) -> None:
        row = {"k": [["2"], [str(osd)], ["", image, digits]], "c": [[1, 0], [2, 0], [1, 0], [1, 0], [1, 1], [2, 2]]}
        self.reports.setdefault(self.number_of("osd_id", 3), []).append(row)

    def ask(self, command: str, **arguments: Any) -> Any:
        code, out, err = self.handle_command("", {"prefix": f"bathyscope {command}", **arguments})  # type: ignore[attr-defined]
        assert (code == 0) == (err == ""), err
        return json.loads(out) if code == 0 else err


CLOCK = [1000.0]
Load = Callable[..., types.ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a loader of the module's text, with what `mgr_module` offers."""

    def load_(**offered: Any) -> types.ModuleType:
        stub = types.ModuleType("mgr_module")
        vars(stub).update({"MgrModule": Manager, **offered})
        monkeypatch.setitem(sys.modules, "mgr_module", stub)
        spec = importlib.util.spec_from_file_location("module_under_test", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        CLOCK[0] = 1000.0
        monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: CLOCK[0]))
        return module

    return load_


@pytest.fixture
def module(load: Load) -> Any:
    """The running module, asked once."""
    made = load().Module("bathyscope", 0, 0)
    made.ask("counters")
    return made


def rows(module: Any, query: str = "image_client") -> list[list[Any]]:
    found = module.ask("counters")["queries"][query]["rows"]
    assert isinstance(found, list)
    return found


def drain(module: Any, after_s: float = 5.0) -> None:
    CLOCK[0] += after_s
    module.drain()


def test_python_3_6_reads_it_and_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 6))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    taken = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= {"errno", "json", "re", "threading", "time", "uuid"}
    assert taken == {"collections", "typing", "mgr_module"}


def test_a_registry_of_commands_is_made_where_the_manager_wants_one(load: Load) -> None:
    assert not hasattr(load().Module, "CLICommand")
    base = types.SimpleNamespace(make_registry_subtype=lambda name: type(name, (), {"COMMANDS": {}}))
    assert load(CLICommandBase=base).Module.CLICommand.COMMANDS == {}
    commands = [command["cmd"].split(" name=")[0] for command in load().Module.COMMANDS]
    assert commands == ["bathyscope status", "bathyscope counters", "bathyscope zoom"]
    assert load().Module.NOTIFY_TYPES == []


def test_no_query_shares_its_state_with_others(module: Any) -> None:
    module.ask("zoom", images="1037b7d03b94", digits=14)
    assert len(module.queries) == 3
    for query in module.queries.values():
        assert "limit" not in query
        for part in query["key_descriptor"]:
            assert part["regex"].endswith("(?:)")
            assert re.compile(part["regex"]).groups >= 1


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:0/2427556676", "127.0.0.1"),
        ("v1:10.0.0.1:0/1", "10.0.0.1"),
        ("v2:10.0.0.1:6800/1", "10.0.0.1"),
        ("[fd00::1]:0/12", "[fd00::1"),
        ("v1:[fd00:0:0::a1]:0/12", "[fd00:0:0::a1"),
    ],
)
def test_an_address_is_kept_without_port_and_nonce(load: Load, address: str, host: str) -> None:
    found = re.search(load().ADDRESS, address)
    assert found is not None
    assert found.groups() == (host,)


@pytest.mark.parametrize(("name", "groups"), [("client.4157", (None, "4157")), ("mgr.4123", ("mgr", "4123"))])
def test_a_client_is_known_by_its_number(load: Load, name: str, groups: Any) -> None:
    found = re.search(load().CLIENT, name)
    assert found is not None
    assert found.groups() == groups


def test_a_key_names_clients_of_all_kinds_and_addresses(load: Load) -> None:
    key_of = load().image_client_key
    rest = [["2"], [""], ["", "a1"]]
    assert key_of([["", "7"], ["[fd00::1"], *rest])[:2] == ("client.7", "fd00::1")
    assert key_of([["mgr", "8"], ["10.0.0.1"], *rest])[:2] == ("mgr.8", "10.0.0.1")


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("rbd_data.1037b7d03b94.000000000000000b", (None, "1037b7d03b94")),
        ("rbd_data.2.1037b7d03b94.000000000000000b", ("2", "1037b7d03b94")),
        ("rbd_data.123456.000000000000000b", (None, "123456")),
        ("rbd_header.1037b7d03b94", None),
        ("journal_data.2.1037b7d03b94.1", None),
        ("benchmark_data_node1_1_object1", None),
    ],
)
def test_an_object_names_its_image(load: Load, name: str, groups: Any) -> None:
    found = re.search(load().IMAGE, name)
    assert (found and found.groups()) == groups


# What a tenant can put into the names that an operation carries: bytes, as RADOS takes them.
_HOSTILE = [
    b"", b"tenant", b"\xff\xfe\x80", b"a\xff", b"\xffa", b"a\n\xff", b"a\nb", b"a\x00b", b"\xc3\xbc", b"\xed\xa0\x80",
    b"client.7", b"client.7\xff", b"mgr\xff.7", b"client.\xff", b"mgr\xe9.12",
    b"10.0.0.1:0/1", b"v1:[fd00::1]:0/1", b"[\xff\xfe]:0/1", b"v2:\xff", b"[fe80::1%\xff]:0/1",
    b"2", b"-1", b"2\xff", b"\xff2",
    b"rbd_data.a1.0000000000000000", b"rbd_data.a1\xff.0000000000000000", b"rbd_data.\xff.0000000000000000",
    b"rbd_data.2\xff.a1.0000000000000000", b"rbd_data.2.a1.000000000000000\xff", b"rbd_data.a1.\xff000000000000000",
]  # fmt: skip


def expressions(module: Any) -> Iterator[re.Pattern[bytes]]:
    """Yield the expressions of all queries, as an OSD matches them: over bytes."""
    module.ask("zoom", images="a1", digits=14)
    module.ask("zoom", images="a1", digits=16, within="0" * 13)
    yield from (
        re.compile(part["regex"].encode()) for query in module.queries.values() for part in query["key_descriptor"]
    )


@given(names=st.lists(st.one_of(st.sampled_from(_HOSTILE), st.binary(max_size=40)), max_size=40))
@example(names=_HOSTILE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_an_osd_reports_is_text(module: Any, names: list[bytes]) -> None:
    """A manager makes Python text of every group, and ends with SIGSEGV where it cannot."""
    for expression in expressions(module):
        for name in names:
            found = expression.search(name)
            for group in (found and found.groups()) or ():
                assert group is None or re.fullmatch(b"[ -~]*", group), (expression.pattern, name)


def test_a_namespace_of_other_bytes_is_not_taken_for_another_one(load: Load) -> None:
    expression = re.compile(load().NAMESPACE.encode())
    found = {name: expression.search(name) for name in (b"", b"tenant", b"a b", b"a\xff", b"\xff", b"a\nb")}
    assert {name: match and match[1] for name, match in found.items()} == {
        b"": b"", b"tenant": b"tenant", b"a b": b"a b", b"a\xff": None, b"\xff": None, b"a\nb": None,
    }  # fmt: skip


def test_what_is_matched_of_an_object_has_a_length(load: Load) -> None:
    """The name may be 2 KiB long, and is a tenant's choice."""
    assert re.search(load().IMAGE, f"rbd_data.{'1' * 18}.{'a' * 32}.0000000000000000") is not None
    assert re.search(load().IMAGE, f"rbd_data.{'a' * 33}.0000000000000000") is None


def test_totals_add_up_over_drains_and_say_since_when(module: Any) -> None:
    module.report_image(7, "a1", 3)
    module.report_image(7, "b2", 5, header="4")
    drain(module)
    module.report_image(7, "a1", 4)
    drain(module)
    assert rows(module) == [
        ["client.7", "10.0.0.1", 2, "", -1, "a1", 5.0, 7, 2, 28672, 1024, 7 * 10**6, 2 * 10**5],
        ["client.7", "10.0.0.1", 2, "", 4, "b2", 5.0, 5, 1, 20480, 512, 5 * 10**6, 10**5],
    ]
    CLOCK[0] += 2
    said = module.ask("counters")
    assert (said["version"], said["at_age_s"], said["dropped"]) == (3, 2.0, 0)
    assert said["queries"]["image_client"]["registered_age_s"] == 12.0


def test_a_key_without_io_for_ten_minutes_is_forgotten_and_made_anew(module: Any) -> None:
    module.report_image(7, "a1", 3)
    drain(module)
    for _ in range(121):
        drain(module)
        module.ask("counters")
    assert rows(module) == []
    module.report_image(7, "a1", 2)
    drain(module)
    assert [row[6:8] for row in rows(module)] == [[0.0, 2]]


def test_when_nobody_asks_the_osds_count_nothing(module: Any) -> None:
    module.report_image(7, "a1", 3)
    drain(module, 119)
    assert len(module.queries) == 2
    module.ask("status")
    drain(module, 2)
    assert (module.queries, module.ask("status")["queries"]) == ({}, {})
    said = module.ask("counters")
    assert len(module.queries) == 2
    assert (said["at_age_s"], said["queries"]["image_client"]) == (0.0, {"registered_age_s": 0.0, "rows": []})


def test_beyond_the_most_keys_zones_are_dropped_then_new_keys_are_counted_together(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.drain.__globals__, "KEYS_MAX", 3)
    module.ask("zoom", images="a1", digits=15)
    module.report_zone(0, "a1", "0" * 15)
    module.report_zone(1, "a1", "0" * 15)
    for client in range(3):
        module.report_image(client, "a1", 1)
    drain(module)
    assert "zones" not in module.ask("counters")["queries"]
    status = module.ask("status")
    assert (status["zones_dropped"], status["keys_dropped"], status["zoom"]) == (True, 0, None)
    for client in range(1, 6):
        module.report_image(client, "a1", 10)
    drain(module)
    assert [(row[0], row[7]) for row in rows(module)] == [
        ("client.0", 1),
        ("client.1", 11),
        ("client.2", 11),
        ("other", 30),
    ]
    assert module.ask("counters")["dropped"] == 3


def test_zones_that_are_given_up_for_images_do_not_stop_the_drain(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.drain.__globals__, "KEYS_MAX", 3)
    module.ask("zoom", images="a1", digits=15)
    module.report_zone(0, "a1", "0" * 15)
    drain(module)
    for client in range(4):
        module.report_image(client, "a1", 1)
    module.report_zone(1, "a1", "0" * 15)
    drain(module)
    assert [row[0] for row in rows(module)] == ["client.0", "client.1", "client.2", "other"]
    assert module.ask("status")["zones_dropped"]


def test_slow_gets_become_rare_and_quick_ones_frequent_again(module: Any) -> None:
    def period_s() -> Any:
        drain(module)
        return module.ask("status")["drain_period_s"]

    assert period_s() == 5.0
    module.get_takes_s = 0.06
    assert [period_s() for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
    assert module.ask("status")["backed_off"]
    module.get_takes_s = 0.0
    found = [period_s() for _ in range(7)]
    assert found[-1] == 5.0
    assert not module.ask("status")["backed_off"]
    module.options["mgr_stats_period"] = "0.1"
    assert period_s() == 1.0


def test_adding_up_many_keys_makes_drains_rare_too(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(*_: Any) -> None:
        CLOCK[0] += 0.2

    monkeypatch.setattr(module, "_add_report", add)
    drain(module)
    status = module.ask("status")
    assert (status["backed_off"], status["drain_period_s"]) == (True, 10.0)
    assert status["get_duration_s"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("version", "osds", "refused"),
    [
        ("ceph version 14.2.4 (75f4) nautilus (stable)", {}, "the mgr is Ceph 14.2.4"),
        (VERSION, {"3": {"ceph_version": "ceph version 14.2.4 (75f4) nautilus (stable)"}}, "osd.3 is Ceph 14.2.4"),
        ("ceph version 14.2.5 (75f4) nautilus (stable)", {"3": {}}, None),
        ("ceph version Development (no_version) tentacle (rc)", {}, None),
    ],
)
def test_osds_that_can_crash_are_asked_nothing(load: Load, version: str, osds: Any, refused: str | None) -> None:
    module = load().Module("bathyscope", 0, 0)
    module.version, module.osds = version, osds
    said = module.ask("counters")
    status = module.ask("status")["refused"]
    assert (len(module.queries) == 0) == (refused is not None)
    if refused is not None:
        assert said == status
        assert refused in said
        # After an upgrade of the OSDs and the manager.
        module.version, module.osds = VERSION, {"3": {"ceph_version": VERSION}}
        assert module.ask("counters")["queries"].keys() == {"image_client", "osd_pool"}
        assert module.ask("status")["refused"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"images": "", "digits": 14},
        {"images": "a1)|(.*", "digits": 14},
        {"images": "a1\n", "digits": 14},
        {"images": ",".join(f"a{number}" for number in range(17)), "digits": 14},
        {"images": "a1", "digits": 11},
        {"images": "a1", "digits": 17},
        {"images": "a1", "digits": 16, "within": "0" * 12},
        {"images": "a1", "digits": 14, "within": "0" * 14},
        {"images": "a1", "digits": 14, "within": ".*"},
    ],
)
def test_a_zoom_that_cannot_be_is_refused(module: Any, arguments: dict[str, Any]) -> None:
    assert "must" in module.ask("zoom", **arguments)
    assert len(module.queries) == 2


def test_zones_are_counted_for_a_minute_unless_asked_for_again(module: Any) -> None:
    assert module.ask("zoom", images="b2,a1", digits="14")["zoom"] == {
        "images": ["a1", "b2"], "digits": 14, "within": "",
    }  # fmt: skip
    module.report_zone(3, "a1", "0" * 13 + "2")
    drain(module, 50)
    assert rows(module, "zones") == [[2, "a1", 3, "00000000000002", 0.0, *[1] * 6]]
    module.ask("zoom", images="a1,b2", digits=14)
    drain(module, 50)
    assert len(rows(module, "zones")) == 1
    drain(module, 20)
    assert "zones" not in module.ask("counters")["queries"]
    assert len(module.queries) == 2


def test_zones_inside_a_zone_are_those_of_its_digits(module: Any) -> None:
    module.ask("zoom", images="a1", digits=16, within="0" * 12 + "1")
    expression = module.queries[module.number_of("osd_id", 3)]["key_descriptor"][2]["regex"]
    found = re.search(expression, "rbd_data.7.a1.00000000000010ab")
    assert found is not None
    assert found.groups() == ("7", "a1", "00000000000010ab")
    assert re.search(expression, "rbd_data.7.a1.00000000000020ab") is None
    assert re.search(expression, "rbd_data.7.a12.00000000000010ab") is None


def test_an_image_with_too_many_zones_gets_larger_ones(module: Any) -> None:
    module.ask("zoom", images="a1", digits=16)
    for number in range(257):
        module.report_zone(0, "a1", f"{number:016x}")
    drain(module)
    assert module.ask("status")["zoom"]["digits"] == 15
    assert rows(module, "zones") == []
    # The same wish goes on with what became of it.
    assert module.ask("zoom", images="a1", digits=16)["zoom"]["digits"] == 15


def test_it_drains_while_it_is_served_and_leaves_nothing(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load()
    monkeypatch.setattr(loaded, "PERIOD_MIN_S", 0.01)
    module = loaded.Module("bathyscope", 0, 0)
    module.options["mgr_stats_period"] = "0.01"
    thread = threading.Thread(target=module.serve)
    thread.start()
    try:
        until(lambda: len(module.queries) == 2)
        module.report_image(7, "a1", 3)
        until(lambda: len(rows(module)) == 1)
    finally:
        module.shutdown()
        thread.join(10)
    assert not thread.is_alive()
    assert module.queries == {}
    module.ask("counters")
    assert module.queries == {}


def test_an_operation_that_reads_and_writes_is_a_write(load: Load) -> None:
    """Five operations, three of them writes, of which the OSD takes two for reads as well."""
    assert load().writes_and_reads([3, 5, 12288, 8192, 3000, 3400]) == [3, 2, 12288, 8192, 3000, 400]
