"""The disposable cluster: a real Ceph (mon, mgr, BlueStore OSDs, MDS) on one machine, with emulated devices.

Not for data that anyone wants to keep, and not a simulation: every daemon is the distribution's own.

    spec      what is wanted            profile   what `hdd` and `ssd` mean here
    journal   what was made, written before it is made; `down` goes by it alone
    state     what a lab is: load, list, the target for the measuring parts; reading changes nothing
    status    what its daemons and its cluster do now
    startup, teardown   up and down; both may be killed at any moment and run again
    builder, bringup    the steps of a bring-up in their order, and what they share
    monitor, osds, devices, nodes, pools, rgw   what is made, a file for each
    unthrottle          quick devices for a while, to fill images
    faults, node_faults what goes wrong with simulated disks and with nodes on demand
    clients             what does I/O on it as virtual machines do, without being any
    caches              a cache over the data directory of each OSD, put on and taken off
    guests, guest_image, guest_agent    virtual machines: QEMU, what they boot, and how they are commanded
    process, daemons, network, loop, simdisk, throttle, mount, ports, keys, conf, releases   one kind of resource each
"""

from __future__ import annotations

from bathyscope.lab.faults import add_fault, clear_faults, list_faults
from bathyscope.lab.profile import load_profiles
from bathyscope.lab.spec import DeviceGroup, LabSpec, parse_device, parse_ec, parse_release
from bathyscope.lab.startup import up
from bathyscope.lab.state import LabState, fresh_target, list_labs, load
from bathyscope.lab.status import daemon_rows, guest_rows, health, run_fio, shell_exports, ssh_command
from bathyscope.lab.teardown import down, down_all
from bathyscope.lab.unthrottle import restore_throttle, unthrottled

__all__ = [
    "DeviceGroup",
    "LabSpec",
    "LabState",
    "add_fault",
    "clear_faults",
    "daemon_rows",
    "down",
    "down_all",
    "fresh_target",
    "guest_rows",
    "health",
    "list_faults",
    "list_labs",
    "load",
    "load_profiles",
    "parse_device",
    "parse_ec",
    "parse_release",
    "restore_throttle",
    "run_fio",
    "shell_exports",
    "ssh_command",
    "unthrottled",
    "up",
]
