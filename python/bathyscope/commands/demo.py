"""`bathy demo`: a real Ceph, measured layer by layer, a report, and nothing left behind: in one command."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bathyscope.commands.options import WorkspaceOption
from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError
from bathyscope.units import format_seconds

if TYPE_CHECKING:
    from bathyscope.lab import LabSpec
    from bathyscope.spec import Target

LAB_NAME = "bathy-demo"
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
    """Start a real Ceph cluster, measure it layer by layer, write a report, and take the cluster down.

    Needs root and the Ceph packages. The cluster is taken down after an error or an interruption, too.
    """
    from bathyscope.bench import session
    from bathyscope.commands.bench import show_result
    from bathyscope.commands.bench_progress import watching
    from bathyscope.commands.targets import load_plan
    from bathyscope.host.local import LocalHost
    from bathyscope.lab import LabSpec, parse_device, parse_release
    from bathyscope.store import Workspace

    began = time.monotonic()
    plan = load_plan(None, preset, [])
    groups = tuple(parse_device(text) for text in device or ["hdd=3", "ssd=3"])
    spec = LabSpec(name=LAB_NAME, devices=groups, release=parse_release(release))
    with _lab(spec) as target, watching() as watcher:
        say(f"measuring: {plan.description or plan.name}")
        run = session.begin(LocalHost(), Workspace(workspace), plan, target, watcher)
    show_result(run, "table", report)
    say(f"done after {format_seconds(time.monotonic() - began)}")


@contextlib.contextmanager
def _lab(spec: LabSpec) -> Iterator[Target]:
    """A lab for the time of the demo. The lab of a demo that was killed is taken down first."""
    from bathyscope import lab as labs

    if LAB_NAME in labs.list_labs():
        say("taking down the lab of an earlier demo")
        labs.down(LAB_NAME)
    began = time.monotonic()
    say(f"starting a real Ceph: {', '.join(f'{g.count} {g.device_class}' for g in spec.devices)} OSDs")
    try:
        state = labs.up(spec, lambda text: say(f"  {text}"))
        say(f"the cluster is up after {format_seconds(time.monotonic() - began)}")
        yield state.target()
    finally:
        # `up` takes an unfinished lab down itself.
        if LAB_NAME in labs.list_labs():
            say("taking the cluster down")
            try:
                labs.down(LAB_NAME)
            except BathyscopeError as error:
                say(f"the lab could not be taken down: {error.message}; try: bathy lab down --name {LAB_NAME}")
