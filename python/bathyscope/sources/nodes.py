"""The machines of a cluster's other OSDs, seen over ssh: which processes these OSDs are there, and how its clock goes.

A machine that cannot be reached, or whose answer is not understood, is left out, and `caveats` names it.
"""

from __future__ import annotations

import collections
import contextlib
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from bathyscope.errors import ParseError
from bathyscope.fields import as_int, last_line, load_json, parsing
from bathyscope.host import NodeRequest, Request
from bathyscope.host.process import BOOT_ID_PATH
from bathyscope.host.ssh import ssh_argv
from bathyscope.records import HERE, SAME_MACHINE, EnvironmentFact, RawAnswer, Record, Tables
from bathyscope.sources import network
from bathyscope.sources.facts import fact_table
from bathyscope.sources.machine import boot_id_of
from bathyscope.sources.node_clock import clock_of
from bathyscope.sources.osd_process import is_of_cluster, only_ones, osd_of
from bathyscope.sources.shape import Source
from bathyscope.spec import DaemonTarget, SshAccess, Target
from bathyscope.spec.scope import Scope, ScopeNode, ScopeOsd
from bathyscope.spec.target import HOST_PATTERN

_NODE, _CLOCK, _LINKS = "node-", "clock-", "links-"
# The fastest of these round trips tells how the clock goes.
_EXCHANGES = 8
_HOST_NAME = "/proc/sys/kernel/hostname"
_NAMED_MAX = 8


class Nodes:
    """The ceph-osd processes of each machine, and several round trips to it."""

    name = "nodes"
    records: tuple[type[Record], ...] = (EnvironmentFact,)
    period_s = 300.0
    # A login takes its time.
    timeout_s = 12.0
    differences = False

    def plan(self, scope: Scope) -> Sequence[Request]:
        """Return the questions to the client host and, with ssh, to every machine with OSDs elsewhere."""
        requests = []
        for name, osds in sorted(_asked(scope).items()):
            access = access_to(scope.target, name)
            if re.fullmatch(HOST_PATTERN, access.names.get(name, name)) is None:
                continue
            argv = ssh_argv(access, name)
            beside = [f"{path}/ceph_fsid" for path in sorted({osd.data_path for osd in osds if osd.data_path})]
            question = {"daemons": "ceph-osd", "beside": beside}
            requests.append(NodeRequest(f"{_NODE}{name}", argv, question, self.timeout_s))
            links = {"paths": [*network.LINK_PATHS, BOOT_ID_PATH]}
            requests.append(NodeRequest(f"{_LINKS}{name}", argv, links, self.timeout_s))
            requests += [
                NodeRequest(f"{_CLOCK}{number}-{name}", argv, {"paths": []}, self.timeout_s)
                for number in range(_EXCHANGES)
            ]
        return requests

    def parse(self, answers: Sequence[RawAnswer], scope: Scope) -> Tables:
        """Return how the clock of each machine goes against ours, and which OSDs were found there."""
        return {EnvironmentFact: fact_table(_facts(answers, scope))}


SOURCE: Source = Nodes()


def nodes_of(answers: Sequence[RawAnswer], scope: Scope) -> tuple[ScopeNode, ...]:
    """Return the machines that answered, with the cluster's OSDs that are there, by the latest answers."""
    nodes = {}
    about = {
        answer.label.removeprefix(_LINKS): {"links": network.links(answer.files), "boot_id": boot_id_of(answer.files)}
        for answer in answers
        if answer.exit_code == 0 and answer.label.startswith(_LINKS)
    }
    for answer in answers:
        name = answer.label.removeprefix(_NODE)
        if answer.label.startswith(_NODE) and answer.exit_code == 0:
            with contextlib.suppress(ParseError):
                nodes[name] = _node(name, answer, scope).model_copy(update=about.get(name, {}))
    return tuple(nodes[name] for name in sorted(nodes))


def caveats(answers: Sequence[RawAnswer], scope: Scope) -> list[str]:
    """Return a sentence for each machine that gives no figures of some of its OSDs, and why."""
    if not answers:
        return []
    nodes = {node.name: node for node in nodes_of(answers, scope)}
    said = {answer.label.removeprefix(_NODE): answer for answer in answers if answer.label.startswith(_NODE)}
    sentences = []
    for name, osds in sorted(_asked(scope).items()):
        there = {daemon.name for daemon in nodes[name].daemons} if name in nodes else set()
        missing = [f"osd.{osd.osd}" for osd in osds if f"osd.{osd.osd}" not in there]
        if not missing:
            continue
        if name in nodes:
            why = "their processes were not found there"
        elif name in said and said[name].exit_code != 0:
            why = f"it could not be reached over ssh: {last_line(said[name].stderr)}"
        else:
            why = "its answer is not understood" if name in said else "its name cannot be used for ssh"
        more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
        named = f"{', '.join(missing[:_NAMED_MAX])}{more}"
        sentences.append(f"{name or 'a machine without a name'} was not sampled for {named}: {why}")
    return sentences


def access_to(target: Target, name: str) -> SshAccess:
    """Return how a machine is reached that is looked at over ssh."""
    client = target.client_host
    if client is not None and (client.name == name or target.ssh is None):
        return client.ssh
    return target.ssh or SshAccess()


def load_on(node: ScopeNode, scope: Scope) -> tuple[tuple[str, int], ...]:
    """Return (role, pid) of the load's processes on a machine."""
    client = scope.target.client_host
    return scope.processes_there if client is not None and client.name == node.name else ()


def elsewhere(scope: Scope) -> dict[str, list[ScopeOsd]]:
    """Return machine → its OSDs that are up and are no processes of this machine."""
    here = {daemon.name for daemon in scope.target.daemons_here}
    machines = collections.defaultdict(list)
    for osd in scope.osds:
        if osd.up and f"osd.{osd.osd}" not in here:
            machines[osd.host_name].append(osd)
    return machines


def _asked(scope: Scope) -> dict[str, list[ScopeOsd]]:
    """Return machine → the OSDs that are looked for there, over ssh; the client host among them."""
    machines = dict(elsewhere(scope)) if scope.target.ssh is not None else {}
    if scope.target.client_host is not None:
        machines.setdefault(scope.target.client_host.name, [])
    return machines


def _node(name: str, answer: RawAnswer, scope: Scope) -> ScopeNode:
    """Return what a machine says of its OSDs. Raises ParseError."""
    with parsing(answer.label):
        said = load_json(answer.stdout)
        texts = {path: content.decode("utf-8", "replace") for path, content in answer.files}
        processes = [(pid, number) for pid in _pids(texts) if (number := osd_of(_argv(texts, pid))) is not None]
        counts = collections.Counter(number for _, number in processes)
        osds = {osd.osd: osd for osd in _asked(scope).get(name, ())}
        # The throttles of a lab's devices are known here only.
        lab_daemons = {daemon.name: daemon for daemon in scope.target.daemons}
        daemons = []
        for pid, number in sorted(processes, key=lambda process: process[1]):
            osd = osds.get(number)
            if osd is None or not is_of_cluster(
                str(scope.fsid),
                [texts.get(f"/proc/{pid}/{kind}", "") for kind in ("cgroup", "cmdline")],
                texts.get(f"/proc/{pid}/root{osd.data_path}/ceph_fsid", "").strip(),
                machine=texts.get(_HOST_NAME, "").strip(),
                reported=osd.host_name,
                alone=counts[number] == 1,
            ):
                continue
            words, known_here = texts[f"/proc/{pid}/stat"].rpartition(")")[2].split(), lab_daemons.get(f"osd.{number}")
            daemons.append(
                DaemonTarget(
                    name=f"osd.{number}", pid=pid, start_ticks=as_int(words[19]), host=name,
                    device=osd.device, device_class=osd.device_class or None,
                    limit=known_here.limit if known_here else None,
                    bluefs_devices=known_here.bluefs_devices if known_here else osd.bluefs_devices,
                )
            )  # fmt: skip
        ticks, page = as_int(said["clock_ticks_per_s"]), as_int(said["page_bytes"])
        if ticks <= 0 or page <= 0:
            raise ValueError("clock ticks and pages are greater than 0")
    return ScopeNode(name=name, daemons=only_ones(daemons), clock_ticks_per_s=ticks, page_bytes=page)


def _pids(texts: dict[str, str]) -> Iterator[int]:
    for path in texts:
        match = re.fullmatch(r"/proc/(\d{1,10})/stat", path)
        if match is not None:
            yield int(match[1])


def _argv(texts: dict[str, str], pid: int) -> list[str]:
    return texts.get(f"/proc/{pid}/cmdline", "").split("\0")


def same_machine(scope: Scope) -> pa.Table:
    """Return the fact of each node that runs under this machine's kernel: its processors are this machine's."""
    return fact_table(fact for node in scope.nodes for fact in _same_machine(node, scope))


def _same_machine(node: ScopeNode, scope: Scope) -> Iterator[tuple[str, str, str]]:
    if node.boot_id and node.boot_id == scope.boot_id:
        yield f"node {node.name}", SAME_MACHINE, HERE


def _facts(answers: Sequence[RawAnswer], scope: Scope) -> Iterator[tuple[str, str, str]]:
    """Yield (subject, name, value)."""
    for node in nodes_of(answers, scope):
        yield f"node {node.name}", "osds", " ".join(daemon.name.removeprefix("osd.") for daemon in node.daemons)
        of_node = [a for a in answers if re.sub(rf"^{_NODE}|^{_CLOCK}\d+-", "", a.label) == node.name]
        if links := network.described(node.links):
            yield f"node {node.name}", "network_links", links
        yield from _same_machine(node, scope)
        clock = clock_of(of_node)
        if clock is not None:
            yield f"node {node.name}", "clock_offset_ns", str(clock.offset_ns)
            yield f"node {node.name}", "clock_error_ns", str(clock.error_ns)
