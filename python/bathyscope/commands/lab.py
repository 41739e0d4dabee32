"""`bathy lab`: a real, disposable Ceph on this machine."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bathyscope.commands import lab_vm
from bathyscope.commands.options import DEFAULT_LAB as DEFAULT_NAME
from bathyscope.commands.options import LabNameOption as Name
from bathyscope.commands.options import OutputOption
from bathyscope.commands.talk import say, status_line
from bathyscope.errors import BathyscopeError, UsageError
from bathyscope.units import format_seconds, parse_bytes

# The figures are those of lab.profile; a test holds them equal. Help is printed without loading the lab.
_UP_HELP = """Start a real Ceph cluster: a monitor, a manager, and an OSD for each device.

Devices are loop devices over sparse files. Their class decides how slow they are once the cluster is up: a disk of \
class hdd is simulated (seeks, rotation, zones, command queue, caches), the others have limits that the kernel applies:

\b
  hdd   4 TB 7,200 rpm SATA hard disk (HGST Ultrastar 7K4000), write cache off; without FUSE a throttle:
        232 / 232 IOPS read / write, 191 MiB/s / 191 MiB/s
  ssd   85.1k / 85.1k IOPS read / write, 496 MiB/s / 496 MiB/s
        SATA data-centre SSD; fast enough that the OSD's CPU is the limit
  nvme  500k / 200k IOPS read / write, 2.79 GiB/s / 1.86 GiB/s
        NVMe data-centre SSD; as a rule faster than the disk beneath the lab

Limits are for requests and bytes per second, without seeks. --profile FILE replaces or adds classes (YAML: a class, \
and in it read_iops, write_iops, read_bytes_per_s, write_bytes_per_s, rotational; disk, the drive to simulate, and \
write_cache). Without root or loop devices the lab uses plain files as quick as this machine, and every result says so.

With --nodes N, OSDs run on N nodes: network, PID, UTS and mount namespaces with a host name (node1, …), an address of \
198.18.0.0/15 on a bridge, and sshd with a key of the lab. Monitor and manager stay on this machine. Without it, nodes \
are CRUSH hosts in name only; so they are without root, ip or sshd, and every result says so.

With --vms N, N guests (vm1, …) run beside the cluster: QEMU machines with an RBD image and a cephx client each, which \
run fio on command. KVM is used where a kernel starts under it, else TCG. See bathy lab vm run --help.

With --db CLASS, the block.db (RocksDB) of each OSD of another class is on a device of CLASS of its own, named \
osd.N.db; so is block.wal with --wal, osd.N.wal. --ec K+M makes an erasure-coded pool ec-K-M, a chunk on each node if \
there are K+M nodes, else on each OSD. It takes objects, and data of images: rbd create --data-pool. --rgw starts an \
object gateway (radosgw); `bathy lab env` has its endpoint and the keys of an S3 user in the variables of S3 clients.

An OSD's BlueStore cache is 48 MiB and does not grow, so that a test image of 512 MiB or more is mostly read from the \
device. A spare device of each class, as large as an OSD's, serves the disk layer. Data lies in \
$XDG_STATE_HOME/bathyscope/labs/NAME.
"""

_UP_EXAMPLES = """Examples:

\b
  bathy lab up                                 3 OSDs on emulated disks
  bathy lab up -d hdd=3 -d ssd=3               two classes, 6 OSDs on 3 nodes
  bathy lab up --nodes 3                       and each OSD on a node of its own
  bathy lab up --vms 2                         and two virtual machines that do I/O on command
  bathy lab up -d hdd=3 --db ssd --db-size 4G  hard disks with their RocksDB on flash
  bathy lab up -d ssd=6 --nodes 3 --ec 2+1     with a pool ec-2-1 that survives a node
  bathy lab up -n s3 -d ssd=3 --rgw            with an S3 endpoint
  bathy lab up -n fs --fs -d ssd=3             with a CephFS
  bathy lab up -n new --release tentacle       Ceph 20.2 beside the installed one
  eval "$(bathy lab env)" && ceph -s           use it
  bathy lab down                               stop it and delete its data
"""


_FAULT_HELP = """Rehearse what dying disks and nodes look like: give one a fault, list the faults, or clear them.

TARGET is osd.N for its simulated disk, osd.N.db or osd.N.wal for that of its block.db or block.wal, hdd for the spare \
disk of that class, or a node. FAULT of a disk is one of:

\b
  slow=10x        every request takes ten times as long
  spike=50ms      a request takes 50 ms longer
  eio[=read]      requests fail
  hang[=write]    requests are not answered until the fault is cleared
  read-only, full writes fail
  flip[=BITS]     reads return blocks with flipped bits
  power-cut[=lose|reorder|tear]   no power: unflushed writes are lost, kept in any order, or torn
  power-on        power again

with restrictions after commas: op=read, probability=0.01, range=0-4M, after=7, count=5, seed=1.
FAULT of a node is one of:

\b
  down            all its processes are killed; undone by up
  partition       its network cable is cut; undone by heal
"""

_FAULT_EXAMPLES = """Examples:

\b
  bathy lab fault osd.2 slow=10x                    one slow disk among good ones
  bathy lab fault osd.1 spike=200ms,probability=0.01
  bathy lab fault osd.0 eio=read,range=0-64M
  bathy lab fault list
  bathy lab fault clear osd.2                       without a target: all faults
  bathy lab fault node2 down
"""


def register(app: typer.Typer) -> None:
    """Attach the verb."""
    group = typer.Typer(no_args_is_help=True, help="Start, look at and stop a real, disposable Ceph cluster.")
    group.command("up", help=_UP_HELP, epilog=_UP_EXAMPLES)(up)
    group.command("status", epilog="Example: bathy lab status --name fs --output json")(status_)
    group.command("env", epilog='Example: eval "$(bathy lab env)" && rbd ls')(env)
    group.command("list", epilog="Example: bathy lab list --output csv")(list_)
    group.command(
        "ssh",
        epilog="Examples: bathy lab ssh node1; bathy lab ssh node2 ps -e",
        # What follows the node is the command's own, also what begins with a dash.
        context_settings={"allow_interspersed_args": False},
    )(ssh)
    lab_vm.add_to(group)
    group.command("fault", help=_FAULT_HELP, epilog=_FAULT_EXAMPLES)(fault)
    group.command("down", epilog="Examples: bathy lab down --name fs; bathy lab down --all")(down)
    app.add_typer(group, name="lab")


def up(  # noqa: PLR0917 - one parameter for each option
    name: Name = DEFAULT_NAME,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-d", help="CLASS=COUNT, repeatable; default hdd=3.")
    ] = None,
    db: Annotated[
        str | None, typer.Option("--db", metavar="CLASS", help="Class of the OSDs' block.db; default: with the data.")
    ] = None,
    db_size: Annotated[str | None, typer.Option(help="Size of each block.db; default 1G.")] = None,
    wal: Annotated[
        str | None, typer.Option("--wal", metavar="CLASS", help="Class of the OSDs' block.wal; default: with block.db.")
    ] = None,
    wal_size: Annotated[str | None, typer.Option(help="Size of each block.wal; default 512M.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Copies of each object; default 3, or what fits.")] = None,
    ec: Annotated[
        str | None,
        typer.Option("--ec", metavar="K+M", help="With an erasure-coded pool ec-K-M for objects and images."),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Nodes with a network, processes, host name and sshd of their own; default 0: names only."),
    ] = None,
    fs: Annotated[bool, typer.Option("--fs", help="With an MDS and a CephFS.")] = False,
    rgw: Annotated[bool, typer.Option("--rgw", help="With an object gateway and an S3 user.")] = False,
    vms: Annotated[int, typer.Option(help="Guests: QEMU machines with an RBD image each.")] = 0,
    vm_size: Annotated[str | None, typer.Option(help="Size of each guest's image, which is thin; default 1G.")] = None,
    release: Annotated[
        str | None, typer.Option(help="Ceph release: pacific, reef, tentacle; default: the installed one.")
    ] = None,
    directory: Annotated[Path | None, typer.Option(help="Where to keep the lab; new or empty.")] = None,
    osd_size: Annotated[str, typer.Option(help="Size of each OSD's device.")] = "8G",
    preallocate: Annotated[bool, typer.Option("--preallocate", help="Reserve disk space.")] = False,
    profile: Annotated[Path | None, typer.Option(help="YAML file of device profiles.")] = None,
    no_emulation: Annotated[
        bool, typer.Option("--no-emulation", help="Plain files, as quick as this machine.")
    ] = False,
) -> None:
    """See _UP_HELP."""
    from bathyscope import lab as labs

    sizes_bytes: dict[str, int] = {}
    for kind, size, wanted, example in (
        ("db", db_size, db, "--db ssd"),
        ("wal", wal_size, wal, "--wal ssd"),
        ("vm", vm_size, vms, "--vms 2"),
    ):
        if size is not None and not wanted:
            option = example.split()[0]
            raise UsageError(f"--{kind}-size has no effect without {option}", hint=f"{example} --{kind}-size {size}")
        if size is not None:
            sizes_bytes[f"{kind}_size_bytes"] = parse_bytes(size)
    spec = labs.LabSpec(
        name=name,
        devices=tuple(labs.parse_device(text) for text in device or ["hdd=3"]),
        db=db,
        wal=wal,
        replicas=replicas,
        nodes=nodes,
        ec=labs.parse_ec(ec),
        fs=fs,
        rgw=rgw,
        vms=vms,
        release=labs.parse_release(release),
        directory=directory,
        osd_size_bytes=parse_bytes(osd_size),
        preallocate=preallocate,
        emulate=not no_emulation,
        profiles=labs.load_profiles(profile),
        **sizes_bytes,
    )
    started = time.monotonic()
    with status_line() as show:
        state = labs.up(spec, show)
    say(f"lab '{state.name}' is up after {format_seconds(time.monotonic() - started)}")
    for _, sentence in state.caveats():
        say(f"note: {sentence}")
    suffix = "" if name == DEFAULT_NAME else f" --name {name}"
    say(f'use it:    eval "$(bathy lab env{suffix})" && ceph -s\nstop it:   bathy lab down{suffix}')


def status_(name: Name = DEFAULT_NAME, output: OutputOption = "table") -> None:
    """Show a lab's daemons, devices and health."""
    from bathyscope import lab as labs
    from bathyscope import views
    from bathyscope.host.local import LocalHost

    state = labs.load(name)
    health = labs.health(state, LocalHost())
    rows = labs.daemon_rows(state)
    guests = labs.guest_rows(state)
    caveats = [sentence for _, sentence in state.caveats()]
    if output == "json":
        document = {
            "name": state.name,
            "status": state.record.status,
            "release": state.record.release,
            "health": health,
            "s3_endpoint": state.record.s3_endpoint,
            "directory": str(state.layout.directory),
            "daemons": rows,
            "guests": guests,
            "caveats": caveats,
        }
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    if output == "table":
        from bathyscope.views.labels import clean

        sys.stdout.write(f"{state.name}: Ceph {state.record.release}, {clean(health)}\n{state.layout.directory}\n")
        if state.record.s3_endpoint is not None:
            sys.stdout.write(f"S3: {state.record.s3_endpoint}, keys: bathy lab env\n")
        sys.stdout.write("\n")
    views.render(rows, output)
    if guests and output == "table":
        sys.stdout.write("\n")
        views.render(lab_vm.without_socket(guests), output)


def fault(
    words: Annotated[list[str], typer.Argument(metavar="TARGET FAULT | list | clear [TARGET]", show_default=False)],
    name: Name = DEFAULT_NAME,
    output: OutputOption = "table",
) -> None:
    """See _FAULT_HELP."""
    from bathyscope import lab as labs
    from bathyscope import views

    match words:
        case ["list"]:
            faults = labs.list_faults(labs.load(name))
            rows = [
                {"target": f.target, "number": f.number, "fault": f.text, "hits": f.hits, "left": f.left}
                for f in faults
            ]
            if not rows and output == "table":
                say("no faults")
                return
            views.render(rows, output)
        case ["clear"] | ["clear", _]:
            target = words[1] if len(words) > 1 else None
            say(f"{labs.clear_faults(labs.load(name), target)} cleared")
        case [target, text]:
            say(labs.add_fault(labs.load(name), target, text))
        case _:
            raise UsageError(
                f"expected TARGET FAULT, list, or clear [TARGET] (got '{' '.join(words)}')",
                hint="bathy lab fault osd.2 slow=10x",
            )


def env(name: Name = DEFAULT_NAME) -> None:
    """Print shell exports that point ceph, rados and rbd at a lab."""
    from bathyscope import lab as labs

    sys.stdout.write(labs.shell_exports(labs.load(name)))


def ssh(
    words: Annotated[list[str], typer.Argument(metavar="NODE [COMMAND...]", show_default=False)],
    name: Name = DEFAULT_NAME,
) -> None:
    """Open a shell on a node of a lab, or run a command there; its exit code is passed on."""
    from bathyscope import lab as labs

    argv = labs.ssh_command(labs.load(name), words[0], words[1:])
    os.execvp(argv[0], argv)  # noqa: S606 - signals, terminal and exit code are ssh's own


def list_(output: OutputOption = "table") -> None:
    """List the labs of this user."""
    from bathyscope import lab as labs
    from bathyscope import views

    rows: list[dict[str, object]] = []
    for name in labs.list_labs():
        row: dict[str, object] = {"name": name}
        try:
            state = labs.load(name)
        except BathyscopeError:
            # Its record is missing or damaged; `lab down` removes it by its journal.
            rows.append(row | {"status": "unusable", "release": "", "osds": "", "daemons": ""})
            continue
        daemons = state.daemons()
        rows.append(
            row
            | {
                "status": state.record.status,
                "release": state.record.release,
                "osds": state.record.spec.osd_count,
                "daemons": f"{sum(daemon.alive for daemon in daemons)}/{len(daemons)} running",
            }
        )
    if not rows and output == "table":
        say("no labs; start one with: bathy lab up")
        return
    views.render(rows, output)


def down(
    name: Name = DEFAULT_NAME,
    all_: Annotated[bool, typer.Option("--all", help="Every lab of this user.")] = False,
) -> None:
    """Stop a lab, whatever state it is in, and delete its data."""
    from bathyscope import lab as labs

    with status_line() as show:
        if all_:
            names = labs.down_all(show)
        else:
            labs.down(name, show)
            names = [name]
    say(f"down: {', '.join(names) or 'no lab was up'}")
