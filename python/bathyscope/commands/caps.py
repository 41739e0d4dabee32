"""`bathy caps`: the cephx caps that a verb needs, no more."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from typing import Annotated

import typer

from bathyscope.commands.options import Output, OutputOption, PoolOption
from bathyscope.commands.talk import say
from bathyscope.errors import UsageError

_EXAMPLES = """Examples:

\b
  bathy caps bench                       pools are made and removed
  bathy caps bench --pool scratch        in a pool of yours: caps on that pool alone
  bathy caps bench --tell                with the OSDs' counters and op stages
  bathy caps bench --set quiesce.scrub=true
  bathy caps bench cleanup               what removes the remains of runs
  bathy caps collect --tell              a recording with the OSDs' counters, or a deep one
  bathy caps cache objects               where BlueStore OSDs have their busiest objects
"""

_WATCHES = ("collect", "top")
_ASKS_OSDS = "cache objects"
_WITHOUT_TELL = {
    "collect": "no --depth deep, no latencies of the OSDs, and their operations from placement groups' statistics",
    "top": "no latencies of the OSDs, and their operations from placement groups' statistics",
    "bench": "no counters and no op stages of the OSDs",
    "bench cleanup": "options of OSDs that a run with --tell has changed are not restored",
}


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    app.command("caps", epilog=_EXAMPLES)(caps)


def caps(  # noqa: PLR0917 - one parameter for each option
    verb: Annotated[
        list[str], typer.Argument(metavar="VERB", help="bench, bench cleanup, collect, top or cache objects.")
    ],
    plan: Annotated[
        str | None, typer.Option("--plan", help="A plan file (YAML). Default: the preset `ladder`.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A packaged plan: see `bathy bench list`.")] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE[,…]", help="Change the plan: an axis or any key.")
    ] = None,
    pool: PoolOption = None,
    tell: Annotated[
        bool, typer.Option("--tell", help="Also the OSDs' counters and op stages: Ceph asks for osd 'allow *'.")
    ] = False,
    client: Annotated[str, typer.Option(help="cephx entity.")] = "client.bathy",
    output: OutputOption = "table",
) -> None:
    """Print the command that makes a key with the least caps that a verb works with."""
    from bathyscope.bench import caps as needed
    from bathyscope.commands.targets import entity_name, load_plan, pool_name
    from bathyscope.spec.caps import Caps
    from bathyscope.watch.caps import of_watch

    name = " ".join(verb)
    if name in needed.VERBS:
        given = None if pool is None else pool_name(pool)
        caps = needed.VERBS[name](load_plan(plan, preset, overrides or []), pool=given, tell=tell)
    elif name in _WATCHES:
        if pool is not None or plan is not None or preset is not None or overrides:
            raise UsageError(f"'{name}' has no plan and loads no pool", hint=f"bathy caps {name}")
        caps = of_watch(tell=tell)
    elif name == _ASKS_OSDS:
        caps = Caps("allow r", "", "allow *")
    else:
        verbs = ", ".join((*needed.VERBS, *_WATCHES, _ASKS_OSDS))
        raise UsageError(f"'{name}' is not a verb that needs a key", hint=f"caps are for: {verbs}")
    _print(entity_name(client), {kind: cap for kind, cap in dataclasses.asdict(caps).items() if cap}, output)
    if not tell and name in _WITHOUT_TELL:
        say(f"without --tell: {_WITHOUT_TELL[name]}; Ceph allows that only with osd 'allow *'")


def _print(client: str, caps: dict[str, str], output: Output) -> None:
    from bathyscope import views

    if output != "table":
        views.render([{"entity": client, "daemon": kind, "caps": cap} for kind, cap in caps.items()], output)
        return
    keyring = f"/etc/ceph/ceph.{client}.keyring"
    lines = [f"ceph auth get-or-create {shlex.quote(client)}"]
    lines += [f"  {kind} {shlex.quote(cap)}" for kind, cap in caps.items()]
    sys.stdout.write(" \\\n".join([*lines, f"  -o {shlex.quote(keyring)}"]) + "\n")
