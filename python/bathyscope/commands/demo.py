"""`bathy demo`: a real Ceph, measured layer by layer, a report, and nothing left behind: in one command."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bathyscope import lab as labs
from bathyscope.bench import session
from bathyscope.commands.bench import Output, load_plan, show_result, watching
from bathyscope.errors import BathyscopeError
from bathyscope.host.local import LocalHost
from bathyscope.lab import spec
from bathyscope.store import Workspace
from bathyscope.units import format_seconds

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
    workspace: Annotated[Path | None, typer.Option("--workspace", "-w", help="Where the run is kept.")] = None,
) -> None:
    """Start a real Ceph cluster, measure it layer by layer, write a report, and take the cluster down.

    Needs root and the Ceph packages. Nothing is left running or mounted, whatever happens.
    """
    began = time.monotonic()
    plan = load_plan(None, preset, [])
    groups = tuple(spec.parse_device(text) for text in device or ["hdd=3", "ssd=3"])
    with _lab(groups, release) as target, watching() as watcher:
        _say(f"measuring: {plan.description or plan.name}")
        run = session.begin(LocalHost(), Workspace(workspace), plan, target, watcher)
    show_result(run, Output.TABLE, report)
    _say(f"done after {format_seconds(time.monotonic() - began)}")


@contextlib.contextmanager
def _lab(groups: tuple[spec.DeviceGroup, ...], release: Any) -> Iterator[Any]:
    """A lab for the time of the demo. One that a killed demo has left is taken down first."""
    if LAB_NAME in labs.list_labs():
        _say("taking down the lab of an earlier demo")
        labs.down(LAB_NAME)
    request = spec.LabSpec(name=LAB_NAME, devices=groups, release=release)
    with _terminable():
        began = time.monotonic()
        _say(f"starting a real Ceph: {', '.join(f'{g.count} {g.device_class}' for g in groups)} OSDs")
        try:
            state = labs.up(request, lambda text: _say(f"  {text}"))
            _say(f"the cluster is up after {format_seconds(time.monotonic() - began)}")
            yield state.target()
        finally:
            _say("taking the cluster down")
            try:
                labs.down(LAB_NAME)
            except BathyscopeError as error:
                _say(f"the lab could not be taken down: {error.message}; try: bathy lab down --name {LAB_NAME}")


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that the lab goes with us."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
