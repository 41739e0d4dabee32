"""`bathy lab vm`: the guests of a lab."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bathyscope.commands.options import DEFAULT_LAB, LabNameOption, OutputOption
from bathyscope.commands.talk import say

_RUN_HELP = """Run fio in a guest, on the guest's disk; print its JSON, and return its exit code.

What follows the guest's name are options of fio. Before them come --name, --filename (the guest's disk, an RBD \
image), --direct=1 and --ioengine=libaio; a later option replaces an earlier one, except that a second --name begins a \
second job, which has none of these. Interrupted, it ends fio in the guest; after a kill -9, fio goes on to its end \
there.
"""
_RUN_EXAMPLES = """Examples:

\b
  bathy lab vm run vm1 --rw randwrite --bs 4k --rate_iops 50 --runtime 30
  bathy lab vm run vm2 --rw randrw --rwmixread 70 --iodepth 16 --time_based --runtime 60
"""


def add_to(lab: typer.Typer) -> None:
    """Attach `vm` to the verb."""
    group = typer.Typer(no_args_is_help=True, help="List the guests of a lab, or run fio in one.")
    group.command("list", epilog="Example: bathy lab vm list --output json")(list_)
    group.command(
        "run",
        help=_RUN_HELP,
        epilog=_RUN_EXAMPLES,
        # What follows the guest is fio's own, also what begins with a dash.
        context_settings={"allow_interspersed_args": False},
    )(run)
    lab.add_typer(group, name="vm")


def list_(name: LabNameOption = DEFAULT_LAB, output: OutputOption = "table") -> None:
    """List the guests of a lab: image, cephx client, process, and the socket of QEMU's guest agent."""
    from bathyscope import lab as labs
    from bathyscope import views

    rows = labs.guest_rows(labs.load(name))
    if not rows and output == "table":
        say("no guests; a lab with guests: bathy lab up --vms 2")
        return
    views.render(without_socket(rows) if output == "table" else rows, output)


def without_socket(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return guests as a table shows them: the socket's path is for programs, and too long for a column."""
    return [{key: value for key, value in row.items() if key != "agent"} for row in rows]


def run(
    words: Annotated[list[str], typer.Argument(metavar="GUEST [FIO OPTION...]", show_default=False)],
    name: LabNameOption = DEFAULT_LAB,
) -> None:
    """See _RUN_HELP."""
    from bathyscope import lab as labs

    answer = labs.run_fio(labs.load(name), words[0], words[1:])
    sys.stderr.write(answer.stderr.decode(errors="replace"))
    sys.stdout.write(answer.stdout.decode(errors="replace"))
    raise typer.Exit(answer.exit_code)
