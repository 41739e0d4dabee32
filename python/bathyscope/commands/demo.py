"""`bathy demo`: a real Ceph, measured and recorded, a report, and nothing left behind: in one command."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import WorkspaceOption
from bathyscope.commands.own_lab import own_lab
from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError
from bathyscope.units import format_seconds

if TYPE_CHECKING:
    from bathyscope.host import Host
    from bathyscope.lab.clients import Client
    from bathyscope.spec import Target
    from bathyscope.store import RunDirectory, Workspace

LAB_NAME = "bathy-demo"
# Before and after the neighbour gets noisy there are three reports of the OSDs at least: less would be no shift.
_RECORDED_S, _QUIET_S = 38.0, 20.0
_EXAMPLES = """Examples:

\b
  bathy demo                              about five minutes; writes report.html
  bathy demo --device ssd=3 --preset smoke
  bathy demo --release tentacle           on Ceph 20.2, from a cached root file system
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("demo", epilog=_EXAMPLES)(demo)


def demo(
    report: Annotated[Path, typer.Option("--output", "-o", help="Where the report is written.")] = Path("report.html"),
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help="CLASS=COUNT; default hdd=3, ssd=3.")
    ] = None,
    preset: Annotated[str, typer.Option(help="The plan to run.")] = "demo",
    release: Annotated[str | None, typer.Option(help="Ceph release: pacific, reef, tentacle.")] = None,
    workspace: WorkspaceOption = None,
) -> None:
    """Start a real Ceph cluster, measure it layer by layer, record who does its I/O, write a report, take it down.

    Needs root and the Ceph packages. The cluster is taken down after an error or an interruption, too.
    """
    from bathyscope import views
    from bathyscope.bench import session
    from bathyscope.commands.analyze import finding_of_view
    from bathyscope.commands.bench import show_result
    from bathyscope.commands.bench_progress import watching
    from bathyscope.commands.report import finding_of
    from bathyscope.commands.targets import load_plan
    from bathyscope.host.local import LocalHost
    from bathyscope.lab import LabSpec, nodes, parse_device, parse_release
    from bathyscope.store import Workspace

    began = time.monotonic()
    plan = load_plan(None, preset, [])
    groups = tuple(parse_device(text) for text in device or ["hdd=3", "ssd=3"])
    # With networks of their own the clients of the recording have different addresses.
    node_count = min(3, sum(group.count for group in groups)) if nodes.obstacle() is None else None
    spec = LabSpec(name=LAB_NAME, devices=groups, release=parse_release(release), nodes=node_count)
    host, runs = LocalHost(), Workspace(workspace)
    with own_lab(spec) as state:
        target = state.target()
        with watching() as watcher:
            say(f"measuring: {plan.description or plan.name}")
            run = session.begin(host, runs, plan, target, watcher)
        recording = None
        try:
            recording = _recorded(host, runs, target)
            study = _studied(host, runs, target)
        except BathyscopeError:
            show_result(run, "table", report, recording=recording)
            raise
    views.render(finding_of_view(recording, "devices"), "table")
    if study is not None:
        views.render(finding_of(study), "table")
    show_result(run, "table", report, recording=recording)
    say(f"done after {format_seconds(time.monotonic() - began)}")


def _recorded(host: Host, workspace: Workspace, target: Target) -> RunDirectory:
    """Record clients that do I/O as virtual machines do, one of them a noisy neighbour, with the manager's module."""
    from bathyscope import lab as labs
    from bathyscope.bench.session import tidy
    from bathyscope.host import mgr_install
    from bathyscope.host.ceph import connect
    from bathyscope.lab import clients
    from bathyscope.spec.collect import CollectSpec
    from bathyscope.watch.collecting import collect

    state, tenants = labs.load(LAB_NAME), _tenants()
    classes = [group.device_class for group in state.record.spec.devices]
    say(f"recording {_RECORDED_S:.0f} s of {len(tenants)} clients, one of which becomes a noisy neighbour")
    with contextlib.closing(connect(host, target)) as session:
        seen = mgr_install.look(session, target)
        # The managers start again while the images are filled.
        with clients.filling(state, host, tenants, "ssd" if "ssd" in classes else classes[0]):
            mgr_install.install(host, session, target, seen)
        try:
            with clients.running(state, host, tenants):
                return collect(
                    host, workspace, CollectSpec(duration_s=_RECORDED_S), target,
                    target_now=lambda: labs.fresh_target(target), tidy=lambda session: tidy(host, session, note=say),
                    note=say, tick=lambda _seconds: None,
                )  # fmt: skip
        finally:
            mgr_install.remove(host, session, target, mgr_install.look(session, target))


def _studied(host: Host, runs: Workspace, target: Target) -> RunDirectory | None:
    """Show in seconds what a cache over the hard disks brings for random reads; None where they cannot have one."""
    from bathyscope import lab as labs
    from bathyscope.bench import phases, session
    from bathyscope.commands.bench_progress import watching
    from bathyscope.studies import vm_fleet

    state = labs.load(LAB_NAME)
    short = {"patterns": ("randread-4K-qd8",), "phases": ("no-cache", "repeated"), "runtime": 1.5, "ramp": 0.3}
    plan = vm_fleet.STUDY.plan(vm_fleet.Parameters.model_validate({"images": 4, "part_size": "32M", **short}))
    try:
        phases.check(plan, target)
    except BathyscopeError as error:
        say(f"without the study of a cache: {error.message}")
        return None
    if not any(device.simulated and device.osd_id is not None for device in state.record.devices):
        say("without the study of a cache: no OSD has a simulated disk")
        return None
    with watching() as watcher:
        return session.begin(host, runs, plan, labs.fresh_target(target), watcher, kind="study")


def _tenants() -> list[Client]:
    """Return the clients: quiet ones, named as Proxmox names disks, and one that gets noisy after a while."""
    from bathyscope.lab.clients import Client

    quiet = [Client(f"vm-{number}-disk-0", 8 + 2 * index, 4 + index) for index, number in enumerate(range(101, 106))]
    return [*quiet, Client("vm-106-disk-0", 300, 100, delay_s=_QUIET_S)]
