"""`bathy bench`: measure a cluster layer by layer."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from bathyscope.commands.options import (
    ClientOption,
    ConfOption,
    KeyringOption,
    LabOption,
    Output,
    OutputOption,
    PoolOption,
    PrefixOption,
    ReportOption,
    RunArgument,
    SshConfigOption,
    SshHostOption,
    SshOption,
    SudoOption,
    TableOption,
    TargetOption,
    WorkspaceOption,
)
from bathyscope.commands.talk import say
from bathyscope.errors import BathyscopeError, UsageError

if TYPE_CHECKING:
    from bathyscope.spec import Target
    from bathyscope.store import RunDirectory

_NOT_AS_EXPECTED = 1

DestroyOption = Annotated[
    bool, typer.Option("--destroy-disk-content", help="The disks named with --disk may be overwritten.")
]

_EXAMPLES = """Examples:

\b
  bathy bench --lab demo --preset quick            the ladder on a lab
  bathy bench run --preset ladder                  on the cluster of /etc/ceph/ceph.conf
  bathy bench run plan.yaml --conf c.conf --client client.bench
  bathy bench run --disk /dev/sdx --layer disk --destroy-disk-content
  bathy bench run --set queue_depth=1,16,64 --dry-run      time, changes, commands, refusals
  bathy bench run --pool scratch --client client.bathy     in a pool of yours, on images of bathy's own
  bathy bench run --ssh @ --sudo                   with processors, devices and network of all nodes, read over ssh
  bathy bench run --lab demo --ssh @               the same of a lab's nodes (`bathy lab up --nodes 3`)
  bathy bench run --prometheus http://mon1:9095    the same from the cluster's own Prometheus, without logins
  bathy bench run --ceph-prefix 'cephadm shell --'         where Ceph's programs are in containers only
  bathy bench run --ceph-prefix 'kubectl -n rook-ceph exec -i deploy/rook-ceph-tools --'
  bathy bench run --client-host client1            load from another machine; fio is started there over ssh
  bathy bench resume last                          continue an interrupted run

Loads run only in pools, images and objects that bathy makes itself (their names begin with bathy-) and removes at the \
end. `bathy caps bench` prints the caps that the cephx client needs.
"""

_RESUME_EXAMPLES = """Examples:

\b
  bathy bench resume last
  bathy bench resume 20260823-141502 --destroy-disk-content     of a run that overwrites a disk
"""

_CLEANUP_EXAMPLES = """Examples:

\b
  bathy bench cleanup                              of all interrupted runs, each with its own key
  bathy bench cleanup 20260823-141502 --client client.admin --keyring admin.keyring
  bathy bench cleanup --forget 20260823-141502     its cluster is gone for good
"""


class _RunIsDefault(TyperGroup):
    """`bathy bench --preset quick` and `bathy bench PLAN.yaml` mean `bathy bench run …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `run` before arguments that begin with no subcommand, nor with what is nearly one and is no file."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            near = difflib.get_close_matches(args[0], self.commands)
            if near and not Path(args[0]).exists():
                raise UsageError(f"bathy bench has no verb '{args[0]}'", hint=f"did you mean: bathy bench {near[0]}?")
            args = ["run", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Attach the verb and its parts."""
    bench = typer.Typer(
        name="bench", cls=_RunIsDefault, no_args_is_help=True, epilog=_EXAMPLES,
        help="Measure a cluster layer by layer: disk, RADOS, RBD.",
    )  # fmt: skip
    bench.command("run", epilog=_EXAMPLES)(run)
    bench.command("resume", epilog=_RESUME_EXAMPLES)(resume)
    bench.command("list", epilog="Example: bathy bench list --output csv")(list_presets)
    bench.command("show", epilog="Example: bathy bench show ladder > plan.yaml")(show)
    bench.command("cleanup", epilog=_CLEANUP_EXAMPLES)(cleanup)
    app.add_typer(bench)


def run(  # noqa: PLR0917 - one parameter for each option
    plan: Annotated[str | None, typer.Argument(metavar="PLAN", help="A plan file (YAML).")] = None,
    preset: Annotated[str | None, typer.Option(help="A packaged plan instead: see `bathy bench list`.")] = None,
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    target: TargetOption = None,
    pool: PoolOption = None,
    ceph_prefix: PrefixOption = None,
    disk: Annotated[
        list[str] | None, typer.Option(metavar="[CLASS=]PATH", help="File or device for the disk layer; repeatable.")
    ] = None,
    destroy_disk_content: DestroyOption = False,
    fio_server: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]", help="Load from this `fio --server`; repeatable.")
    ] = None,
    client_host: Annotated[
        str | None, typer.Option(metavar="[USER@]HOST", help="Load of the cluster from this machine, by fio over ssh.")
    ] = None,
    ssh: SshOption = None,
    ssh_config: SshConfigOption = None,
    ssh_host: SshHostOption = None,
    sudo: SudoOption = False,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="Take the nodes' figures from this Prometheus, instead of ssh.")
    ] = None,
    prometheus_auth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="USER:PASSWORD or token for it. Default: $BATHY_PROMETHEUS_AUTH."),
    ] = None,
    prometheus_match: Annotated[
        list[str] | None, typer.Option(metavar="LABEL=VALUE", help="Label of all series of the cluster; repeatable.")
    ] = None,
    layer: Annotated[list[str] | None, typer.Option(help="Only these layers: rados,rbd; repeatable.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE[,…]", help="Change the plan: an axis or any key.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Repeats of every configuration.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Measured time of a step: 10s.")] = None,
    ramp: Annotated[str | None, typer.Option(help="Warm-up before it: 2s.")] = None,
    workspace: WorkspaceOption = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what it takes, changes and starts, and whether it would be refused."),
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave pools and images; `bench cleanup` removes them.")] = False,
    output: OutputOption = "table",
    table: TableOption = None,
    report: ReportOption = None,
) -> None:
    """Run a plan on a lab, a cluster or a disk, and print the ladder.

    Without PLAN and --preset the plan is `ladder`.
    """
    from bathyscope import lab as labs
    from bathyscope.bench import session
    from bathyscope.commands.bench_progress import watching
    from bathyscope.commands.targets import client_host as load_host
    from bathyscope.commands.targets import (
        find_target,
        fio_client,
        load_plan,
        pool_name,
        prometheus_access,
        ssh_access,
        with_nodes,
        with_prefix,
    )
    from bathyscope.host.local import LocalHost
    from bathyscope.store import Workspace

    check_dry_run_table(table, dry_run=dry_run)
    changes = list(overrides or [])
    changes += [f"{k}={v}" for k, v in (("repeats", repeats), ("runtime", runtime), ("ramp", ramp)) if v is not None]
    if layer:
        changes.append(f"layers={','.join(layer)}")
    chosen = load_plan(plan, preset, changes)
    if lab is not None and not dry_run:
        labs.restore_throttle(labs.load(lab))
    chosen_target = find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=target, disks=disk or [])
    chosen_target = with_prefix(chosen_target, ceph_prefix)
    chosen_target = chosen_target.model_copy(
        update={"clients": chosen_target.clients + tuple(map(fio_client, fio_server or []))}
    )
    if (ssh or client_host) and lab is not None and ssh_config is None:
        ssh_config = labs.load(lab).ssh_config
    if ssh_config is not None and not (ssh or client_host):
        raise UsageError("--ssh-config needs --ssh or --client-host", hint="add --ssh @, or --ssh USER@")
    if client_host is not None and chosen_target.clients:
        raise UsageError("--client-host and --fio-server were given together", hint="load comes from one or the other")
    if client_host is not None and chosen_target.root is not None:
        raise UsageError(
            "--client-host cannot be used with a lab of another release", hint="its nodes have the fio of this machine"
        )
    if client_host is not None:
        chosen_target = chosen_target.model_copy(update={"client_host": load_host(client_host, ssh_config)})
    chosen_target = with_nodes(
        chosen_target,
        ssh_access(ssh, config=ssh_config, names=ssh_host or [], sudo=sudo),
        prometheus_access(prometheus, auth=prometheus_auth, labels=prometheus_match or []),
    )
    if pool is not None:
        chosen_target = chosen_target.model_copy(update={"pool": pool_name(pool)})
    if destroy_disk_content:
        disks = {name: d.model_copy(update={"destructive": True}) for name, d in chosen_target.disks.items()}
        chosen_target = chosen_target.model_copy(update={"disks": disks})
    host = LocalHost()
    if dry_run:
        from bathyscope import views

        predicted = session.predict(host, chosen, chosen_target)
        views.render(predicted, output, table=table)
        if predicted.refusal:
            raise typer.Exit(1)
        return
    with watching() as watcher:
        finished = session.begin(host, Workspace(workspace), chosen, chosen_target, watcher, keep=keep)
    show_result(finished, output, report)


def check_dry_run_table(table: str | None, *, dry_run: bool) -> None:
    """Raise UsageError for a table that a dry run has not, or of a run, which has one alone."""
    from bathyscope.views import findings
    from bathyscope.views.findings.prediction import TABLES

    if table is not None and not dry_run:
        raise UsageError("--table is for --dry-run", hint="the CSV of a run is one table")
    findings.check_table(table, TABLES)


def resume(  # noqa: PLR0917 - one parameter for each option
    run: RunArgument,
    workspace: WorkspaceOption = None,
    destroy_disk_content: DestroyOption = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave pools and images.")] = False,
    output: OutputOption = "table",
    report: ReportOption = None,
) -> None:
    """Continue an interrupted run, of a study too: finished steps are kept, the unfinished one is repeated."""
    from bathyscope import lab as labs
    from bathyscope.bench import session
    from bathyscope.commands.bench_progress import watching
    from bathyscope.commands.own_lab import take_down_after
    from bathyscope.host.local import LocalHost
    from bathyscope.store import Workspace

    def refreshed(target: Target) -> Target:
        if target.kind == "lab":
            labs.restore_throttle(labs.load(target.name))
        return labs.fresh_target(target)

    with watching() as watcher:
        finished = session.resume(
            LocalHost(), Workspace(workspace), run, watcher,
            refresh=refreshed, keep=keep, destroy_disk_content=destroy_disk_content,
        )  # fmt: skip
    take_down_after(finished)
    show_result(finished, output, report)


def list_presets(output: OutputOption = "table") -> None:
    """List the packaged plans. Steps and load are for one device class."""
    from bathyscope import views
    from bathyscope.commands.targets import load_plan
    from bathyscope.spec.plan_file import preset_names
    from bathyscope.units import format_seconds

    rows = []
    for name in preset_names():
        plan = load_plan(None, name, [])
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
    views.render(rows, output)


def show(plan: Annotated[str, typer.Argument(metavar="PLAN|PRESET", help="A plan file or a preset's name.")]) -> None:
    """Print a plan: a preset as it is packaged, a file with its defaults filled in."""
    from bathyscope.commands.targets import load_plan
    from bathyscope.spec.plan_file import dump_plan, preset_names, preset_text

    if plan in preset_names() or not Path(plan).exists():
        sys.stdout.write(preset_text(plan))
        return
    sys.stdout.write(dump_plan(load_plan(plan, None, [])))


def cleanup(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Only these runs.")] = None,
    forget: Annotated[
        bool,
        typer.Option(
            "--forget", help="Forget the changes without asking the cluster, which is gone for good. Needs RUN."
        ),
    ] = False,
    client: Annotated[str | None, typer.Option(help="cephx entity. Default: the run's own.")] = None,
    keyring: KeyringOption = None,
) -> None:
    """Remove what interrupted runs left on clusters, and restore their settings. Runs under way are left alone."""
    from bathyscope.bench import session
    from bathyscope.commands.targets import with_key
    from bathyscope.host.local import LocalHost
    from bathyscope.lab import fresh_target

    if forget and not runs:
        raise UsageError("--forget needs a run", hint="bathy bench cleanup --forget RUN")

    def named(target: Target) -> Target:
        return with_key(fresh_target(target), client, keyring)

    done, failed = session.clean_abandoned(LocalHost(), refresh=named, note=say, only=runs or [], forget=forget)
    if failed:
        raise BathyscopeError(
            f"{len(failed)} changes could not be undone; the first: {failed[0]}",
            hint="when the cause is removed: bathy bench cleanup, with another key: --client, --keyring; "
            "if the cluster is gone for good: bathy bench cleanup --forget RUN",
        )
    if not done:
        say("nothing to clean up")


def show_result(
    run: RunDirectory, output: Output, report: Path | None, *, recording: RunDirectory | None = None
) -> None:
    """Print what a run found and write its report, to `report` or into the run, with a recording if there is one.

    Exits with 1 when it is not as expected.
    """
    from bathyscope import views
    from bathyscope.commands.report import finding_of, write_page
    from bathyscope.records.report_finding import ReportFinding

    finding = finding_of(run)
    views.render(finding, output)
    shown = finding if recording is None else ReportFinding(finding, finding_of(recording))
    written = write_page(shown, report or run.path / "report.html", private=report is None)
    say(f"run {run.id}: {run.path}")
    say(f"report: {written}")
    if not getattr(finding, "passed", True):
        raise typer.Exit(_NOT_AS_EXPECTED)
