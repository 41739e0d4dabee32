"""The options and arguments that several verbs share: each has one name, one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from bathyscope.errors import UsageError

Output = Literal["table", "json", "csv"]


def _of_csv(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """Raise UsageError for a table of what is not CSV, before any work: whichever of both options is read last."""
    given = {**ctx.params, param.name: value}
    # The argument of `bathy schema` has this name, too.
    has_option = any("--table" in each.opts for each in ctx.command.params)
    if has_option and given.get("table") is not None and given.get("output", "csv") != "csv":
        raise UsageError(
            f"--table is for --output csv (got --output {given['output']})", hint="the other outputs have all tables"
        )
    return value


WorkspaceOption = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", help="Directory of the runs. Default: $BATHY_WORKSPACE, else ./bathy-runs."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", callback=_of_csv, help="How to print the result.")]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table", metavar="KEY", callback=_of_csv, help="Of --output csv: this table of several; the first by default."
    ),
]
ReportOption = Annotated[Path | None, typer.Option("--report", help="Also write the report to this HTML file.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help='A run: its id, the beginning of its id, its path, or "last".')
]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Begin this long after the start of the recording: 30s.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="End this long after the start of the recording: 60s.")
]

DEFAULT_LAB = "default"
LabNameOption = Annotated[str, typer.Option("--name", "-n", help="The lab's name.")]
LabOption = Annotated[str | None, typer.Option("--lab", help="The lab of this name.")]
ConfOption = Annotated[
    str | None, typer.Option("--conf", help="ceph.conf of the cluster. Default: /etc/ceph/ceph.conf.")
]
DEFAULT_CLIENT = "client.admin"
ClientOption = Annotated[str | None, typer.Option("--client", help=f"cephx entity. Default: {DEFAULT_CLIENT}.")]
KeyringOption = Annotated[
    str | None, typer.Option("--keyring", help="Keyring of the entity, if ceph.conf does not name it.")
]
PrefixOption = Annotated[
    str | None,
    typer.Option(
        "--ceph-prefix",
        envvar="BATHY_CEPH_PREFIX",
        metavar="WORDS",
        help="Run Ceph's commands by these words: 'cephadm shell --'. Loads run here.",
    ),
]
PoolOption = Annotated[
    str | None, typer.Option("--pool", help="A replicated pool of yours, instead of pools that bathy makes.")
]
TargetOption = Annotated[Path | None, typer.Option("--target", help="A target file (YAML) instead of --lab or --conf.")]
SshOption = Annotated[
    str | None,
    typer.Option(
        "--ssh",
        metavar="[USER]@",
        help="Sample the OSDs' machines over ssh; @: ssh's own user name. A lab's nodes have theirs.",
    ),
]
SshConfigOption = Annotated[
    Path | None, typer.Option("--ssh-config", help="ssh configuration file, in place of ~/.ssh/config.")
]
SshHostOption = Annotated[
    list[str] | None,
    typer.Option("--ssh-host", metavar="NODE=NAME", help="Name of a node for ssh, if another; repeatable."),
]
SudoOption = Annotated[bool, typer.Option("--sudo", help="Read as root on these machines, by `sudo -n`.")]
ImageStatisticsOption = Annotated[
    bool,
    typer.Option(
        "--image-statistics",
        help="Without the module of `bathy mgr install`, ask Ceph's own statistics of images. Only where you trust all "
        "clients: the name of an object can end the manager meanwhile. On in a lab.",
    ),
]
LibvirtOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="URI", help="Ask this host of virtual machines who has which image, as virsh -c does; repeatable."
    ),
]
KubectlOption = Annotated[
    str | None,
    typer.Option(metavar="WORDS", help="Ask Kubernetes which pod has which image, by this command: kubectl."),
]
AttachmentsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="CSV file of who has which image, with the header image,host,vm or address,host."
    ),
]
CacheArgument = Annotated[str, typer.Argument(metavar="CACHE", help="The cache's name.")]
CacheOption = Annotated[
    str | None, typer.Option("--cache", metavar="CACHE", help="The cache, if several have the name.")
]
CacheRootOption = Annotated[
    Path,
    typer.Option(
        "--root", envvar="BATHY_CACHE_ROOT", hidden=True, help="Configurations, state and sockets lie below DIR."
    ),
]
