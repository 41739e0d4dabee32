"""`bathy top`: who does the I/O now, on a live screen."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

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
    TableOption,
    TargetOption,
    WorkspaceOption,
)
from bathyscope.commands.talk import say, status_line
from bathyscope.errors import UsageError

if TYPE_CHECKING:
    from bathyscope.watch.feeds import LiveFeed, ReplayFeed

_EXAMPLES = """Examples:

\b
  bathy top --lab demo                     images of a lab, every 5 s
  bathy top osds --interval 2s             OSDs of the cluster of /etc/ceph/ceph.conf
  bathy top --once --output json           one sample, for a program
  bathy top --libvirt qemu+ssh://kvm1/system   with the virtual machines of this host
  bathy top objects --image rbd/vm-1       the objects of an image, counted by the manager's module
  bathy top slow                           the slowest operations that the OSDs keep: stages, who was waited for
  bathy top --replay last                  a recording, with the same keys

Keys: enter goes into a row (an image, its zones, their objects), escape back, tab next view, s sort by the next \
column, r reverse, / filter, space pause, ? help, q quit; in a recording also , and . to go back and on.
"""
# What a person asks for first; `timeline` needs more time than a screen holds.
_VIEWS = {"images": "devices", "clients": "clients", "osds": "osds", "nodes": "nodes", "pools": "pools",
          "slow": "slow"}  # fmt: skip
_MORE = ("balance", "health")
_OF_IMAGE = ("zones", "objects", "ops")
# The OSDs begin to report on images when the manager has told them to.
_FIRST_REPORT_S = 8.0
# And on the objects of an image, when the module has asked them to, which the next question makes it do.
_FIRST_ZOOM_S = 12.0


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("top", epilog=_EXAMPLES)(top)


def top(  # noqa: PLR0917 - one parameter for each option
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="images, clients, osds, nodes, pools or slow (operations); zones, objects or ops of --image.",
        ),
    ] = "images",
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="Go into this image: POOL/[NAMESPACE/]IMAGE.")
    ] = None,
    interval: Annotated[str, typer.Option(help="Time between samples: 1s to 60s.")] = "5s",
    depth: Annotated[
        str, typer.Option(help="light: monitors and manager only. normal: also OSDs' counters.")
    ] = "normal",
    image_statistics: ImageStatisticsOption = False,
    once: Annotated[bool, typer.Option("--once", help="Print one sample and end, without a screen.")] = False,
    replay: Annotated[str | None, typer.Option("--replay", metavar="RUN", help="Show this recording.")] = None,
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    target: TargetOption = None,
    ceph_prefix: PrefixOption = None,
    libvirt: LibvirtOption = None,
    kubectl: KubectlOption = None,
    attachments: AttachmentsOption = None,
    workspace: WorkspaceOption = None,
    output: OutputOption = "table",
    table: TableOption = None,
) -> None:
    """Show who does the I/O of a cluster now: images, clients, OSDs, nodes, pools."""
    from bathyscope.analysis.activity import VIEWS
    from bathyscope.commands.targets import find_target, with_prefix, with_resolvers
    from bathyscope.host.local import LocalHost
    from bathyscope.lab import fresh_target
    from bathyscope.spec.collect import CollectSpec
    from bathyscope.spec.values import checked
    from bathyscope.store import Workspace
    from bathyscope.views.findings import check_table
    from bathyscope.watch.feeds import ReplayFeed, live

    if what not in (*_VIEWS, *_OF_IMAGE):
        raise UsageError(f"bathy top shows no '{what}'", hint=f"one of {', '.join((*_VIEWS, *_OF_IMAGE))}")
    if what in _OF_IMAGE and image is None:
        raise UsageError(f"{what} are those of one image", hint=f"bathy top {what} --image POOL/IMAGE")
    if table is not None and not once:
        raise UsageError("--table is for --once", hint=f"bathy top --once --output csv --table {table}")
    view = _VIEWS.get(what, what) if image is None else what if what in _OF_IMAGE else _OF_IMAGE[0]
    check_table(table, VIEWS[view].tables)
    if not once and not (sys.stdout.isatty() and sys.stdin.isatty()):
        raise UsageError("a screen needs a terminal", hint="bathy top --once --output json prints one sample")
    if replay is not None:
        run = Workspace(workspace).open_run(replay)
        if run.info.kind != "collect":
            raise UsageError(f"run {run.id} is not a recording", hint="bathy collect makes one")
        _show(ReplayFeed(run), view, image, once=once, output=output, table=table)
        return
    if depth == "deep":
        raise UsageError("bathy top changes nothing on a cluster", hint="bathy collect --depth deep records operations")
    spec = checked(CollectSpec, duration_s=None, interval_s=interval, depth=depth, image_statistics=image_statistics)
    chosen_target = with_prefix(
        find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=target), ceph_prefix
    )
    chosen_target = with_resolvers(chosen_target, libvirt or (), kubectl, attachments)
    host = LocalHost()
    with contextlib.ExitStack() as stack:
        with status_line() as status:
            status("connecting")
            feed = stack.enter_context(
                live(host, spec, chosen_target, target_now=lambda: fresh_target(chosen_target), note=say)
            )
            if once:
                status("waiting for the first reports of the OSDs")
                host.sleep(_FIRST_REPORT_S)
                if image is not None:
                    _check_image(feed, image)
                    feed.zoom(image)
                    host.sleep(_FIRST_ZOOM_S)
                host.sleep(feed.shown_s)
        _show(feed, view, image, once=once, output=output, table=table)


def _show(
    feed: LiveFeed | ReplayFeed, view: str, image: str | None, *, once: bool, output: str, table: str | None
) -> None:
    from bathyscope import interruption, views
    from bathyscope.analysis.activity import VIEWS
    from bathyscope.watch.feeds import ReplayFeed

    if once:
        if image is not None:
            _check_image(feed, image)
        views.render(feed.view(view, {} if image is None else {"image": image}), output, table=table)
        return
    from bathyscope.views.tui.top import Top

    roots = [*_VIEWS.values(), *_MORE]
    replay = isinstance(feed, ReplayFeed)
    with interruption.held():
        Top(feed, roots, view, known=VIEWS, replay=replay, image=image, interrupted=interruption.noted).run()


def _check_image(feed: LiveFeed | ReplayFeed, image: str) -> None:
    """Raise UsageError for an image that is not there; nothing where it is not known which are."""
    from bathyscope.watch import drill_down

    if (images := feed.images()) and image not in images:
        raise drill_down.unknown(image, images)
