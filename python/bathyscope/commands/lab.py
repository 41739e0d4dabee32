"""`bathy lab`: a real, disposable Ceph on this machine."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from bathyscope import lab as labs
from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.host.local import LocalHost
from bathyscope.lab import profile, spec, status
from bathyscope.units import format_seconds, parse_bytes

Output = Literal["table", "json", "csv"]
Name = Annotated[str, typer.Option("--name", "-n", help="The lab's name.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]

_PROFILES = "\n".join(f"  {name:5} {p.sentence()}\n        {p.description}" for name, p in profile.BUILT_IN.items())

_UP_HELP = f"""Start a real Ceph cluster: a monitor, a manager, and an OSD for each device.

Devices are loop devices with direct I/O over sparse files. Their class decides the limits that the kernel applies \
to them once the cluster is up:

\b
{_PROFILES}

Limits are for requests and bytes per second; there are no seeks. --profile FILE replaces or adds classes (YAML: a \
class, and in it read_iops, write_iops, read_bytes_per_s, write_bytes_per_s, rotational). Without root, loop devices \
or I/O control groups the lab uses plain files without limits, and every result says so.

An OSD's BlueStore cache is 48 MiB and does not grow, so that a test image of 512 MiB or more is mostly read from the \
device. A spare device of each class, 2 GiB, serves the disk layer. Data lies in $XDG_STATE_HOME/bathyscope/labs/NAME.
"""

_UP_EXAMPLES = """Examples:

\b
  bathy lab up                                 3 OSDs on emulated disks
  bathy lab up -d hdd=3 -d ssd=3               two classes, 6 OSDs on 3 nodes
  bathy lab up -n fs --fs -d ssd=3             with a CephFS
  bathy lab up -n new --release tentacle       Ceph 20.2 beside the installed one
  eval "$(bathy lab env)" && ceph -s           use it
  bathy lab down                               stop it and delete its data
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="Start, look at and stop a real, disposable Ceph cluster.")
    group.command("up", help=_UP_HELP, epilog=_UP_EXAMPLES)(up)
    group.command("status", epilog="Example: bathy lab status --name fs --output json")(status_)
    group.command("env", epilog='Example: eval "$(bathy lab env)" && rbd ls')(env)
    group.command("list", epilog="Example: bathy lab list --output csv")(list_)
    group.command("down", epilog="Examples: bathy lab down --name fs; bathy lab down --all")(down)
    app.add_typer(group, name="lab")


def up(  # noqa: PLR0917 - one parameter for each option
    name: Name = spec.DEFAULT_NAME,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help="CLASS=COUNT, repeatable; default hdd=3.")
    ] = None,
    replicas: Annotated[int | None, typer.Option(help="Copies of each object; default 3, or what fits.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Simulated nodes (CRUSH hosts); default 3, or what fits.")] = None,
    fs: Annotated[bool, typer.Option("--fs", help="With an MDS and a CephFS.")] = False,
    release: Annotated[
        str | None, typer.Option(help=f"Ceph release: {', '.join(spec.RELEASES)}; default: what is installed.")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="Where to keep the lab; new or empty.")] = None,
    osd_size: Annotated[str, typer.Option(help="Size of each OSD's device.")] = "8G",
    preallocate: Annotated[bool, typer.Option("--preallocate", help="Reserve disk space.")] = False,
    profile_file: Annotated[Path | None, typer.Option("--profile", help="YAML file of device profiles.")] = None,
    no_throttle: Annotated[bool, typer.Option("--no-throttle", help="Plain files, no limits.")] = False,
) -> None:
    """See _UP_HELP."""
    if release is not None and release not in spec.RELEASES:
        raise UsageError(f"unknown release '{release}'", hint=f"one of: {', '.join(spec.RELEASES)}")
    for option, value in (("--replicas", replicas), ("--nodes", nodes)):
        if value is not None and not 1 <= value <= (10 if option == "--replicas" else spec.MAX_OSDS):
            raise UsageError(f"{option} {value} is out of range")
    size = parse_bytes(osd_size)
    if size < spec.MIN_OSD_SIZE_BYTES:
        raise UsageError(f"--osd-size {osd_size} is too small for BlueStore", hint="at least 1G")
    groups = tuple(spec.parse_device(text) for text in device or ["hdd=3"])
    request = spec.LabSpec(
        name=name,
        devices=groups,
        replicas=replicas,
        nodes=nodes,
        fs=fs,
        release=release,
        directory=directory,
        osd_size_bytes=size,
        preallocate=preallocate,
        throttle=not no_throttle,
        profiles=profile.load_profiles(profile_file),
    )
    started = time.monotonic()
    with _terminable(), _talk() as say:
        state = labs.up(request, say)
    sys.stderr.write(f"lab '{state.name}' is up after {format_seconds(time.monotonic() - started)}\n")
    for _, sentence in state.record.caveats:
        sys.stderr.write(f"note: {sentence}\n")
    suffix = "" if name == spec.DEFAULT_NAME else f" --name {name}"
    sys.stderr.write(f'use it:    eval "$(bathy lab env{suffix})" && ceph -s\nstop it:   bathy lab down{suffix}\n')


def status_(name: Name = spec.DEFAULT_NAME, output: OutputOption = "table") -> None:
    """Show a lab's daemons, devices and health."""
    state = labs.load(name)
    health = status.health(state, LocalHost())
    rows = status.daemon_rows(state)
    if output == "json":
        document = {
            "name": state.name,
            "status": state.record.status,
            "release": state.record.release,
            "health": health,
            "directory": str(state.layout.directory),
            "daemons": rows,
            "caveats": [sentence for _, sentence in state.record.caveats],
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    if output == "table":
        sys.stdout.write(f"{state.name}: Ceph {state.record.release}, {health}\n{state.layout.directory}\n\n")
    _print_rows(rows, output)


def env(name: Name = spec.DEFAULT_NAME) -> None:
    """Print shell exports that point ceph, rados and rbd at a lab."""
    sys.stdout.write(status.shell_exports(labs.load(name)))


def list_(output: OutputOption = "table") -> None:
    """List the labs of this user."""
    rows: list[dict[str, object]] = []
    for name in labs.list_labs():
        try:
            state = labs.load(name)
        except BathyscopeError:
            # Cut off before its record was written, or damaged; `lab down` removes either.
            rows.append({"name": name, "status": "unusable", "release": "", "osds": "", "daemons": ""})
            continue
        daemons = state.daemons()
        running = sum(daemon.alive for daemon in daemons)
        rows.append(
            {
                "name": name,
                "status": state.record.status,
                "release": state.record.release,
                "osds": state.record.spec.osd_count,
                "daemons": f"{running}/{len(daemons)} running",
            }
        )
    if not rows and output == "table":
        sys.stderr.write("no labs; start one with: bathy lab up\n")
        return
    _print_rows(rows, output)


def down(
    name: Name = spec.DEFAULT_NAME,
    all_: Annotated[bool, typer.Option("--all", help="Every lab of this user.")] = False,
) -> None:
    """Stop a lab, whatever state it is in, and delete its data."""
    with _talk() as say:
        names = labs.down_all(say) if all_ else [name]
        if not all_:
            labs.down(name, say)
    sys.stderr.write(f"down: {', '.join(names) or 'nothing was up'}\n")


@contextmanager
def _terminable() -> Iterator[None]:
    """Make the first SIGINT, SIGTERM or SIGHUP interrupt `up`, and let the clean-up that follows finish."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(_number: int, _frame: object) -> None:
        for number in signals:
            signal.signal(number, patience)
        raise KeyboardInterrupt

    def patience(_number: int, _frame: object) -> None:
        os.write(sys.stderr.fileno(), b"bathy: still taking the lab down\n")

    previous = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _talk() -> Iterator[Callable[[str], None]]:
    """Yield a function that tells the user what is going on: a status line on a terminal, else plain lines."""
    if sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("") as line:
            yield line.update
        return
    started = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - started:5.1f} s] {text}\n")

    yield say


def _print_rows(rows: list[dict[str, object]], output: Output) -> None:
    if output == "json":
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
        return
    if not rows:
        return
    if output == "csv":
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        sys.stdout.write(buffer.getvalue())
        return
    widths = {key: max(len(key), *(len(str(row[key])) for row in rows)) for key in rows[0]}
    for cells in (dict.fromkeys(rows[0], None), *rows):
        texts = [f"{(key if cells[key] is None else str(cells[key])):{width}}" for key, width in widths.items()]
        sys.stdout.write("  ".join(texts).rstrip() + "\n")
