"""`bathy bench`: measure a cluster layer by layer."""

from __future__ import annotations

import contextlib
import enum
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from typer.core import TyperGroup

from bathyscope import views
from bathyscope.analysis import ladder
from bathyscope.bench import conductor, session
from bathyscope.bench.commands_run import commands_of
from bathyscope.bench.conductor import Watcher
from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.host.ceph import DEFAULT_CONF
from bathyscope.host.local import LocalHost
from bathyscope.lab import state as lab_state
from bathyscope.layers import REGISTRY, LayerRows
from bathyscope.records import Step
from bathyscope.spec import DiskTarget, FioClient, StepSpec, Target
from bathyscope.spec.plan import Plan
from bathyscope.spec.plan_file import dump_plan, parse_plan, preset_names, preset_text, read_plan_text
from bathyscope.store import RunDirectory, Workspace
from bathyscope.units import format_bandwidth, format_rate, format_seconds

_EXAMPLES = """Examples:

\b
  bathy bench --lab demo --preset quick            the ladder on a lab
  bathy bench run --preset ladder                  on the cluster of /etc/ceph/ceph.conf
  bathy bench run plan.yaml --conf c.conf --client client.bench
  bathy bench run --disk /dev/sdx --layer disk --destroy-disk-content
  bathy bench run --preset ladder --set queue_depth=1,16,64 --dry-run
  bathy bench resume last                          go on after an interruption

Loads run only in pools and images that bathy makes itself (their names begin with bathy-) and removes at the end. \
The cephx client needs: mon 'allow *' mgr 'allow r' osd 'allow *' (pools and CRUSH rules are made; `ceph tell osd.N` \
reads the op history).
"""


class Output(enum.StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


_WorkspaceOption = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", help="Where runs are kept; default $BATHY_WORKSPACE or ./bathy-runs."),
]
_OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
_ReportOption = Annotated[Path | None, typer.Option("--report", help="Also write the report to this HTML file.")]


class _RunIsMeant(TyperGroup):
    """`bathy bench --preset quick` and `bathy bench PLAN.yaml` mean `bathy bench run …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before arguments that begin with no subcommand."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Attach the verb and its parts."""
    bench = typer.Typer(
        name="bench", cls=_RunIsMeant, no_args_is_help=True, epilog=_EXAMPLES,
        help="Measure a cluster layer by layer: disk, RADOS, RBD.",
    )  # fmt: skip
    bench.command("run", epilog=_EXAMPLES)(run)
    bench.command("resume")(resume)
    bench.command("list")(list_presets)
    bench.command("show")(show)
    bench.command("cleanup")(cleanup)
    app.add_typer(bench)


def run(  # noqa: PLR0917 - one parameter for each option
    plan: Annotated[str | None, typer.Argument(metavar="[PLAN]", help="A plan file (YAML).")] = None,
    preset: Annotated[str | None, typer.Option(help="A packaged plan instead: see `bathy bench list`.")] = None,
    lab: Annotated[str | None, typer.Option(help="Measure this lab.")] = None,
    conf: Annotated[str | None, typer.Option(help="ceph.conf of the cluster to measure.")] = None,
    client: Annotated[str, typer.Option(help="cephx entity.")] = "client.admin",
    keyring: Annotated[str | None, typer.Option(help="Its keyring, where ceph.conf does not say.")] = None,
    target: Annotated[Path | None, typer.Option(help="A target file (YAML) instead of the options above.")] = None,
    disk: Annotated[
        list[str] | None, typer.Option(metavar="[CLASS=]PATH", help="File or device for the disk layer; repeatable.")
    ] = None,
    destroy_disk_content: Annotated[
        bool, typer.Option("--destroy-disk-content", help="The disks named with --disk may be overwritten.")
    ] = False,
    fio_server: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]", help="Load from this `fio --server`; repeatable.")
    ] = None,
    layer: Annotated[list[str] | None, typer.Option(help="Only these layers; repeatable.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE[,…]", help="Change the plan: an axis or any key.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Repeats of every configuration.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Measured time of a step: 10s.")] = None,
    ramp: Annotated[str | None, typer.Option(help="Warm-up before it: 2s.")] = None,
    workspace: _WorkspaceOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print every command and start nothing.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave pools and images; `bench cleanup` removes them.")] = False,
    output: _OutputOption = Output.TABLE,
    report: _ReportOption = None,
) -> None:
    """Run a plan on a lab, a cluster or a disk, and print the ladder.

    Without PLAN and --preset the plan is `ladder`.
    """
    changes = list(overrides or [])
    changes += [f"{k}={v}" for k, v in (("repeats", repeats), ("runtime", runtime), ("ramp", ramp)) if v is not None]
    if layer:
        changes.append(f"layers={','.join(layer)}")
    wanted = load_plan(plan, preset, changes)
    host = LocalHost()
    aim = find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=target, disks=disk or [])
    aim = aim.model_copy(update={"clients": aim.clients + tuple(_fio_client(text) for text in fio_server or [])})
    if destroy_disk_content:
        disks = {name: d.model_copy(update={"destructive": True}) for name, d in aim.disks.items()}
        aim = aim.model_copy(update={"disks": disks})
    if dry_run:
        _print_commands(host, wanted, aim, output)
        return
    with watching() as watcher, interruptible():
        finished = session.begin(host, Workspace(workspace), wanted, aim, watcher, keep=keep)
    show_result(finished, output, report)


def resume(
    reference: Annotated[str, typer.Argument(metavar="RUN", help='Id, unique prefix, path, or "last".')],
    workspace: _WorkspaceOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave pools and images.")] = False,
    output: _OutputOption = Output.TABLE,
    report: _ReportOption = None,
) -> None:
    """Go on with an interrupted run: finished steps are kept, the unfinished one is done again."""
    with watching() as watcher, interruptible():
        finished = session.resume(
            LocalHost(), Workspace(workspace), reference, watcher, refresh=fresh_target, keep=keep
        )
    show_result(finished, output, report)


def list_presets(output: _OutputOption = Output.TABLE) -> None:
    """List the packaged plans; steps and load are for one device class."""
    rows = []
    for name in preset_names():
        plan = parse_plan(preset_text(name), name=name, layers=list(REGISTRY))
        configurations = len(plan.pattern_values()) * len(plan.layers)
        seconds = configurations * plan.repeats * (plan.ramp + plan.runtime)
        rows.append(
            {
                "preset": name,
                "steps": configurations * plan.repeats,
                "load": format_seconds(seconds),
                "description": plan.description,
            }
        )
    views.render(rows, output.value)


def show(plan: Annotated[str, typer.Argument(metavar="PLAN|PRESET", help="A plan file or a preset's name.")]) -> None:
    """Print a plan: a preset as it is packaged, a file as it is understood."""
    if plan in preset_names():
        sys.stdout.write(preset_text(plan))
        return
    if not Path(plan).exists():
        preset_text(plan)
    sys.stdout.write(dump_plan(load_plan(plan, None, [])))


def cleanup(
    runs: Annotated[list[str] | None, typer.Argument(metavar="[RUN]…", help="Only these runs.")] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Do not ask the cluster: it is gone for good. Needs RUN.")
    ] = False,
) -> None:
    """Remove what interrupted runs left on clusters, and restore what they switched. Living runs are left alone."""
    if forget and not runs:
        raise UsageError("--forget needs the runs to forget", hint="bathy bench cleanup --forget RUN")
    with interruptible():
        done, failed = session.clean_abandoned(
            LocalHost(), refresh=fresh_target, note=_say, only=runs or [], forget=forget
        )
    if failed:
        raise BathyscopeError(
            f"{len(failed)} things could not be undone: {failed[0]}",
            hint="is that cluster reachable? then try again; gone for good: bathy bench cleanup --forget RUN",
        )
    if not done:
        _say("nothing to clean up")


# --- plans and targets


def load_plan(path: str | None, preset: str | None, changes: list[str]) -> Plan:
    """Return the plan of a file or a preset with `--set` changes. Raises UsageError, PlanError."""
    if path is not None and preset is not None:
        raise UsageError("a plan file and --preset were both given", hint="give one of them")
    if path is not None:
        return parse_plan(read_plan_text(Path(path)), name=path, layers=list(REGISTRY), overrides=changes)
    name = preset or "ladder"
    return parse_plan(preset_text(name), name=f"preset {name}", layers=list(REGISTRY), overrides=changes)


def find_target(
    *, lab: str | None, conf: str | None, client: str, keyring: str | None, file: Path | None, disks: list[str]
) -> Target:
    """Return what is to be measured. Raises UsageError, LabError."""
    named = [name for name, value in (("--lab", lab), ("--conf", conf), ("--target", file)) if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} were both given", hint="name the cluster once")
    extra = dict(_disk(text) for text in disks)
    if lab is not None:
        found = lab_state.load(lab).target()
    elif file is not None:
        found = _target_file(file)
    elif conf is None and extra and not Path(DEFAULT_CONF).exists():
        found = Target(name="disk", kind="disk")
    else:
        found = Target(name=conf or DEFAULT_CONF, conf=conf, client=client, keyring=keyring)
    return found.model_copy(update={"disks": {**found.disks, **extra}})


def _target_file(path: Path) -> Target:
    try:
        return Target.model_validate(YAML(typ="safe", pure=True).load(path.read_text()))
    except OSError as error:
        raise UsageError(f"the target file {path} cannot be read: {error.strerror}") from error
    except (YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"the target file {path} is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise UsageError(f"the target file {path}: {where}: {first['msg']}") from error


def _disk(text: str) -> tuple[str, DiskTarget]:
    """Return (device class, disk) of `[CLASS=]PATH`."""
    device_class, _, path = text.rpartition("=") if "=" in text and not text.startswith("/") else ("", "", text)
    place = Path(path)
    if not place.exists():
        raise UsageError(f"the disk {path} does not exist", hint="name a file or a block device: --disk hdd=/dev/sdx")
    resolved = place.resolve()
    if place.is_block_device():
        with contextlib.suppress(OSError, ValueError):
            sectors = int(Path(f"/sys/class/block/{resolved.name}/size").read_text())
            return device_class, DiskTarget(path=str(resolved), device=resolved.name, size_bytes=sectors * 512)
    return device_class, DiskTarget(path=str(resolved), size_bytes=place.stat().st_size or None)


def _fio_client(text: str) -> FioClient:
    host, colon, port = text.rpartition(":")
    if not colon:
        return FioClient(host=text)
    if not port.isdigit():
        raise UsageError(f"'{text}' is not HOST:PORT")
    return FioClient(host=host, port=int(port))


def fresh_target(target: Target) -> Target:
    """Return a lab's target as the lab is now: its daemons may have been restarted. Others stay as they are."""
    return lab_state.load(target.name).target() if target.kind == "lab" else target


# --- what a person sees


def _print_commands(host: LocalHost, plan: Plan, target: Target, output: Output) -> None:
    """Print what a run would start, exactly as it would. The run's random suffix is 000000."""
    if session.needs_cluster(plan) and target.kind != "lab":
        with session.open_session(host, target, plan) as connected:
            classes = session.device_classes(connected, target)
    else:
        # A lab's own record says it without a connection.
        classes = tuple(sorted({*target.disks, *(d.device_class for d in target.daemons if d.device_class)}))
    commands = conductor.planned_commands(plan, target, classes, "00000000-000000-000000")
    if output is Output.TABLE:
        for key, request in commands:
            words = [f"{name}={value}" for name, value in request.environment]
            prefix = ["chroot", request.root] if request.root else []
            where = f"  # in {request.cgroup}" if request.cgroup else ""
            sys.stdout.write(f"# {key}\n{shlex.join([*words, *prefix, *request.argv])}{where}\n")
        return
    rows = [
        {
            "step_key": key,
            "command": shlex.join(request.argv),
            "environment": " ".join(f"{name}={value}" for name, value in request.environment),
            "root": request.root or "",
            "cgroup": request.cgroup or "",
        }
        for key, request in commands
    ]
    views.render(rows, output.value)


def show_result(run: RunDirectory, output: Output, report: Path | None) -> None:
    """Print a run's ladder and, if asked, write its report."""
    from bathyscope.views import report as html

    finding = ladder.build(run.tables(), commands=commands_of(run))
    views.render(finding, output.value)
    written = report or run.path / "report.html"
    html.write(finding, written)
    _say(f"run {run.id}: {run.path}")
    _say(f"report: {written}")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


class _Signalled(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the run ends as with Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _raise_signalled(number: int, _frame: object) -> None:
    # A second one, while the first is being obeyed, would cut the restoring of settings short.
    signal.signal(number, signal.SIG_IGN)
    raise _Signalled(number)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP mean what Ctrl-C means; each has its exit code."""
    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What a parent has told us to ignore (nohup) stays ignored.
        if signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, _raise_signalled)
    try:
        yield
    except KeyboardInterrupt as interruption:
        _say("bathy: interrupted")
        sys.exit(128 + (interruption.number if isinstance(interruption, _Signalled) else signal.SIGINT))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _PlainWatcher(Watcher):
    """One line for each step: for logs and pipes."""

    def note(self, text: str) -> None:
        _say(f"  {text}")

    def step_ended(self, record: Step, rows: LayerRows) -> None:
        _say(_step_line(record, rows))

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        _say(f"[{number}/{total}] {step.key} #{step.repeat_index + 1}")


class _BarWatcher(Watcher):
    """A progress bar on a terminal, with a line above it for each step that is done."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: Any = None

    def note(self, text: str) -> None:
        self._progress.console.print(f"  {text}", style="dim", markup=False, highlight=False)

    def step_begins(self, number: int, total: int, step: StepSpec) -> None:
        text = f"{step.key} #{step.repeat_index + 1}"
        if self._task is None:
            self._task = self._progress.add_task(text, total=total)
        self._progress.update(self._task, description=text, completed=number - 1)
        self._done = number - 1

    def step_ticks(self, seconds: float, expected_s: float) -> None:
        share = min(0.99, seconds / expected_s) if expected_s > 0 else 0.0
        self._progress.update(self._task, completed=self._done + share)

    def step_ended(self, record: Step, rows: LayerRows) -> None:
        self._progress.console.print(_step_line(record, rows), markup=False, highlight=False)
        self._progress.update(self._task, completed=self._done + 1)


@contextlib.contextmanager
def watching() -> Iterator[Watcher]:
    """A progress bar when stderr is a terminal, else one plain line for each step."""
    if not sys.stderr.isatty():
        yield _PlainWatcher()
        return
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _BarWatcher(progress)


def _step_line(record: Step, rows: LayerRows) -> str:
    """Return one finished step in one line."""
    name = f"{record.step_key} #{record.repeat_index + 1}"
    if record.status != "done":
        return f"  {name}: {record.status}: {record.reason}"
    iops = sum(row.iops for row in rows.results)
    bandwidth = sum(row.bandwidth_bytes_per_s for row in rows.results)
    return f"  {name}: {format_rate(iops)} IOPS, {format_bandwidth(bandwidth)}"
