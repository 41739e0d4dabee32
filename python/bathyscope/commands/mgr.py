"""`bathy mgr`: the module of the manager that counts I/O by image, client and OSD."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bathyscope.commands.options import (
    ClientOption,
    ConfOption,
    KeyringOption,
    LabOption,
    OutputOption,
    PrefixOption,
    TargetOption,
)
from bathyscope.commands.talk import say, status_line

if TYPE_CHECKING:
    from bathyscope.host import CephSession, Host
    from bathyscope.host.mgr_install import Look
    from bathyscope.spec import Target

_INSTALL_HELP = """Install and enable the manager's module `bathyscope`.

The module counts client I/O by image and client, and by OSD and pool, with perf queries of the OSDs. The files are \
written where all managers run on this machine, outside of containers; for other hosts the commands are printed. \
Enabling a module makes each manager start again: dashboard, Prometheus and balancer are away for some seconds, \
and no client's I/O is affected. If anything fails, nothing is left.
"""
_INSTALL_EXAMPLES = """Examples:

\b
  bathy mgr install --lab default
  bathy mgr install --cephadm-spec > mgr.yaml   for managers in containers; then:
  ceph orch apply -i mgr.yaml && ceph orch redeploy mgr && ceph mgr module enable bathyscope --force
"""
_RESTARTS = "every manager started itself again to load it; no client's I/O was affected"
_REDEPLOY = "ceph orch apply -i FILE && ceph orch redeploy mgr && ceph mgr module enable bathyscope --force"


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="Install, look at and remove the module that counts I/O.")
    group.command("status", epilog="Example: bathy mgr status --lab default --output json")(status)
    group.command("install", help=_INSTALL_HELP, epilog=_INSTALL_EXAMPLES)(install)
    group.command("remove", epilog="Example: bathy mgr remove --lab default")(remove)
    app.add_typer(group, name="mgr")


def status(  # noqa: PLR0917 - one parameter for each option
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    prefix: PrefixOption = None,
    target: TargetOption = None,
    output: OutputOption = "table",
) -> None:
    """Show whether the module is there, what it counts, and what that costs."""
    from bathyscope import views

    with _seen(lab, conf, client, keyring, prefix, target) as (_, _, _, seen):
        pass
    if output == "json":
        managers = [{"name": m.name, "host": m.host, "active": m.active} for m in seen.managers]
        document = {"enabled": seen.enabled, "module_path": seen.path, "managers": managers, "status": seen.status}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    rows = [{"subject": subject, "value": value} for subject, value in _described(seen)]
    views.render(rows, output)


def install(  # noqa: PLR0917 - one parameter for each option
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    prefix: PrefixOption = None,
    target: TargetOption = None,
    cephadm_spec: Annotated[
        bool, typer.Option("--cephadm-spec", help="Print a service specification of cephadm; change nothing.")
    ] = False,
) -> None:
    """See _INSTALL_HELP."""
    from bathyscope.host import mgr_install

    with _seen(lab, conf, client, keyring, prefix, target) as (host, session, found, seen):
        if cephadm_spec:
            sys.stdout.write(mgr_install.cephadm_spec(seen))
            say(f"save it as FILE and merge it with `ceph orch ls mgr --export`, then: {_REDEPLOY}")
            return
        if not all(manager.here for manager in seen.managers):
            say("nothing was changed: not all managers run on this machine, outside of containers.")
            _print_commands("on every manager's host (in containers: --cephadm-spec):", mgr_install.by_hand(seen))
            _print_commands("to undo it:", mgr_install.by_hand_removed(seen))
            raise typer.Exit(1)
        with status_line() as show:
            show("enabling the module; the managers start again")
            answer = mgr_install.install(host, session, found, seen)
    say(f"the module bathyscope {answer['version']} answers; {_RESTARTS}")
    say(f"remove it: bathy mgr remove{f' --lab {lab}' if lab else ''}")


def remove(  # noqa: PLR0917 - one parameter for each option
    lab: LabOption = None,
    conf: ConfOption = None,
    client: ClientOption = None,
    keyring: KeyringOption = None,
    prefix: PrefixOption = None,
    target: TargetOption = None,
) -> None:
    """Disable the module, then delete its files. OSDs count nothing for it from then on."""
    from bathyscope.host import mgr_install

    with _seen(lab, conf, client, keyring, prefix, target) as (host, session, found, seen):
        mgr_install.remove(host, session, found, seen)
    if all(manager.here for manager in seen.managers):
        say("the module is disabled and its files are deleted")
    else:
        say("the module is disabled")
        _print_commands("delete its files:", mgr_install.by_hand_removed(seen)[1:])


@contextlib.contextmanager
def _seen(  # noqa: PLR0917 - one parameter for each option
    lab: str | None, conf: str | None, client: str | None, keyring: str | None, prefix: str | None, file: Path | None
) -> Iterator[tuple[Host, CephSession, Target, Look]]:
    """Yield a connection to the cluster that the options name, and what it says of its managers."""
    from bathyscope.commands.targets import find_target, with_prefix
    from bathyscope.host import mgr_install
    from bathyscope.host.ceph import connect
    from bathyscope.host.local import LocalHost

    target = with_prefix(find_target(lab=lab, conf=conf, client=client, keyring=keyring, file=file), prefix)
    host = LocalHost()
    with contextlib.closing(connect(host, target)) as session:
        yield host, session, target, mgr_install.look(session, target)


def _print_commands(title: str, commands: list[str]) -> None:
    from bathyscope.views.labels import clean

    # What is shown is what would be copied.
    sys.stdout.write("\n".join([f"# {title}", *map(clean, commands)]) + "\n")


def _described(seen: Look) -> Iterator[tuple[str, str]]:
    """Yield (subject, text)."""
    from bathyscope.host import mgr_install

    answer: dict[str, Any] | None = seen.status
    for manager in seen.managers:
        yield f"mgr.{manager.name}", f"{'active' if manager.active else 'standby'} on {manager.host}"
    if not seen.enabled:
        yield "module", "not enabled; install it: bathy mgr install"
        return
    if answer is None:
        yield "module", "enabled, but it does not answer; the log of the active manager says why"
        return
    yield "module", f"enabled, version {answer['version']}"
    if (difference := mgr_install.difference(answer["version"])) is not None:
        yield "version", difference
    if answer["refused"]:
        yield "refused", str(answer["refused"])
    for name, query in answer["queries"].items():
        yield name, f"{query['keys']} keys, counted for {query['registered_age_s']:.0f} s"
    if not answer["queries"]:
        yield "queries", "none: nobody has asked for two minutes, so the OSDs count nothing; they begin when asked"
    if answer["keys_dropped"] or answer["zones_dropped"]:
        yield "too many keys", "new keys are counted together" if answer["keys_dropped"] else "zones are not counted"
    yield "cost for OSDs", "about 1 µs of processor time for each operation of a client, while it is counted"
    slower = "; slowed down, as reading the counters took more than 100 ms" if answer["backed_off"] else ""
    duration_ms = answer["get_duration_s"] * 1000
    yield "cost for the manager", f"{duration_ms:.1f} ms every {answer['drain_period_s']:.0f} s{slower}"
