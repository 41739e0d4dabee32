"""A client host is checked before anything is made: reachable, fio with the engines, our time."""

from __future__ import annotations

import json

import pytest

from bathyscope.bench import client_host
from bathyscope.commands import targets
from bathyscope.errors import EnvironmentError_, UsageError
from bathyscope.host import Completed, NodeAnswer, NodeRequest, ProcessRequest
from bathyscope.host.fake import EPOCH_NS, FakeAnswer, FakeHost
from bathyscope.spec import ClientHost, Pattern, StepSpec, Target

TARGET = Target(name="t", client_host=ClientHost(name="client1"))
MS = 10**6


def step(layer: str) -> StepSpec:
    pattern = Pattern(op="randread", block_size_bytes=4096, queue_depth=1)
    return StepSpec(layer=layer, device_class="ssd", pattern=pattern, runtime_s=1, ramp_s=0, repeat_index=0)


def world(*, engines: bytes = b"\trados\n\trbd\n", offset_ns: int = 0, code: int = 0) -> FakeHost:
    def fio(request: ProcessRequest) -> FakeAnswer:
        assert request.elsewhere is not None
        assert request.elsewhere.ssh[-1] == "client1"
        out = b"fio-3.33\n" if "--version" in request.argv else engines
        return FakeAnswer(exit_code=code, stdout=out, stderr=b"ssh: no route to host" if code else b"")

    def clock(request: NodeRequest) -> NodeAnswer:
        said = {"before_ns": EPOCH_NS + offset_ns, "after_ns": EPOCH_NS + offset_ns}
        at = (EPOCH_NS - MS, EPOCH_NS + MS)
        return NodeAnswer(Completed(request, 0, json.dumps(said).encode(), b"", *at))

    host = FakeHost({"fio": fio})
    host.nodes = clock
    return host


def test_a_client_host_that_can_do_it_is_named_with_its_fio() -> None:
    said: list[str] = []
    client_host.check(world(), TARGET, [step("rados"), step("rbd"), step("disk")], said.append)
    assert said == ["load from client1: fio-3.33"]
    # Disks are loaded from this machine: nobody is asked.
    client_host.check(FakeHost(), TARGET, [step("disk")], said.append)
    client_host.check(FakeHost(), Target(name="t"), [step("rbd")], said.append)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (world(code=255), "fio --version on client1 failed: ssh: no route to host"),
        (world(engines=b"\trados\n"), "fio on client1 \\(fio-3.33\\) has no engine 'rbd'"),
        (world(offset_ns=1500 * MS), "the clock of client1 is 1.50 s ahead of this machine's"),
        (world(offset_ns=-200 * MS), "the clock of client1 is 200 ms behind this machine's"),
    ],
)
def test_one_that_cannot_is_refused_with_a_reason(host: FakeHost, why: str) -> None:
    with pytest.raises(EnvironmentError_, match=why) as error:
        client_host.check(host, TARGET, [step("rbd")], lambda _: None)
    assert error.value.hint


@pytest.mark.parametrize("text", ["", "@", "root@", "-oProxyCommand=x", "a b", "x y@host", "a,b"])
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--client-host must be"):
        targets.client_host(text, None)


def test_a_host_with_and_without_a_user() -> None:
    named = targets.client_host("load@client1", None)
    assert (named.name, named.ssh.user) == ("client1", "load")
