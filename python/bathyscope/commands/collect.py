"""`bathy collect`: record who does the I/O on a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from bathyscope.commands.options import (
    AttachmentsOption,
    ClientOption,
    ConfOption,
    ImageStatisticsOption,
    KeyringOption,
    KubectlOption,
    LabOption,
    LibvirtOption,
    OutputOption,
    PrefixOption,
    SshConfigOption,
    SshHostOption,
    SshOption,
    SudoOption,
    TargetOption,
    WorkspaceOption,
)
from bathyscope.commands.talk import progress_bar, say
from bathyscope.errors import UsageError

_EXAMPLES = """Examples:

\b
  bathy collect --lab demo                         a minute of a lab
  bathy collect --duration 10m --interval 10s      ten minutes of the cluster of /etc/ceph/ceph.conf
  bathy collect --depth light                      monitors and manager only: needs no cap for the OSDs
  bathy collect --depth deep --duration 5m         with single operations and where their time went
  bathy collect --follow                           until it is ended (ctrl-C, SIGTERM); old samples are joined
  bathy collect --image rbd/vm-101-disk-0          and its objects: bathy analyze last rbd/vm-101-disk-0 --view zones
  bathy collect --ssh @ --sudo                     with devices, processors and networks of all nodes
  bathy collect --libvirt qemu+ssh://root@kvm1/system   with the virtual machines that have the images
  bathy collect --kubectl kubectl --attachments who.csv with the pods, and with what you know yourself
  bathy analyze last                               then: who did it

Nothing on the cluster is changed but by --depth deep. Ctrl-C ends a recording; what was recorded until then is kept.

--depth deep enlarges the op history of at most 8 OSDs at a time for 5 s and restores it exactly; after a kill the \
next start of collect or bench does. At most 5,000 operations of each OSD, every 20 s; in recordings of more than an \
hour 1,000, every minute. The busiest OSDs come first, then all others in turn; bursts take at most a quarter of the \
time. It needs osd 'allow *': bathy caps collect --tell.
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("collect", epilog=_EXAMPLES)(collect)


def collect(  # noqa: PLR0917 - one parameter for each option
    duration: Annotated[str | None, typer.Option(help="How long to record: 60s, 10m, 2h. Default: 60s.")] = None,
    interval: Annotated[str, typer.Option(help="Time between samples: 1s to 60s.")] = "5s",
    depth: Annotated[
        str,
        typer.Option(
            help="light: monitors and manager only. normal: also OSDs' counters and machines. "
            "deep: also bursts of single operations; changes options of OSDs for seconds."
        ),
    ] = "normal",
    image: Annotated[
        list[str] | None,
        typer.Option(metavar="POOL/IMAGE", help="Count the single objects of this image, too; repeatable, at most 16."),
    ] = None,
    image_statistics: ImageStatisticsOption = False,
    follow: Annotated[bool, typer.Option("--follow", help="Record until it is ended; join old samples.")] = False,
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    target: TargetOption = None,
    ceph_prefix: PrefixOption = None,
    libvirt: LibvirtOption = None,
    kubectl: KubectlOption = None,
    attachments: AttachmentsOption = None,
    ssh: SshOption = None,
    ssh_config: SshConfigOption = None,
    ssh_host: SshHostOption = None,
    sudo: SudoOption = False,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
) -> None:
    """Record the I/O of a cluster: images, OSDs, placement groups, devices. `bathy analyze` shows who did it."""
    from bathyscope import lab as labs
    from bathyscope import views
    from bathyscope.bench.session import tidy
    from bathyscope.commands.analyze import finding_of_view
    from bathyscope.commands.targets import find_target, ssh_access, with_nodes, with_prefix, with_resolvers
    from bathyscope.host.local import LocalHost
    from bathyscope.spec.collect import CollectSpec
    from bathyscope.spec.values import checked
    from bathyscope.store import Workspace
    from bathyscope.watch.collecting import collect as record

    if follow and duration is not None:
        raise UsageError("--follow and --duration were given together", hint="--follow records until it is ended")
    spec = checked(
        CollectSpec,
        duration_s=None if follow else duration or "60s",
        interval_s=interval,
        depth=depth,
        images=image or (),
        image_statistics=image_statistics,
    )
    chosen_target = with_prefix(
        find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=target), ceph_prefix
    )
    chosen_target = with_resolvers(chosen_target, libvirt or (), kubectl, attachments)
    if ssh and lab is not None and ssh_config is None:
        ssh_config = labs.load(lab).ssh_config
    chosen_target = with_nodes(chosen_target, ssh_access(ssh, config=ssh_config, names=ssh_host or [], sudo=sudo), None)
    host = LocalHost()
    with _ticking(spec.duration_s) as tick:
        run = record(
            host, Workspace(workspace), spec, chosen_target, target_now=lambda: labs.fresh_target(chosen_target),
            tidy=lambda session: tidy(host, session, note=say), note=say, tick=tick,
        )  # fmt: skip
    views.render(finding_of_view(run, "devices"), output)
    say(f"run {run.id}: {run.path}")
    say(f"more of it: bathy analyze {run.id} --view osds")


@contextlib.contextmanager
def _ticking(duration_s: float | None) -> Iterator[Callable[[float], None]]:
    """Show on a terminal how long it has recorded; else say once that it does."""
    from rich.progress import BarColumn, TextColumn

    from bathyscope.units import format_seconds

    whole = "until it is ended" if duration_s is None else f"for {format_seconds(duration_s)}"
    with progress_bar(TextColumn("{task.description}"), BarColumn()) as bar:
        if bar is None:
            # With the first tick: before it, it may turn out that there is no cluster to record.
            words = iter([f"recording {whole}"])
            yield lambda _seconds: next(map(say, words), None)
            return
        task = bar.add_task("recording", total=duration_s)

        def tick(seconds: float) -> None:
            bar.update(task, completed=seconds, description=f"recording {whole}: {format_seconds(seconds)}")

        yield tick
