"""The disposable cluster: a real Ceph (mon, mgr, BlueStore OSDs, MDS) on one machine, with emulated devices.

Not for data that anyone wants to keep, and not a simulation: every daemon is the distribution's own.

    spec      what is wanted            profile   what `hdd` and `ssd` mean here
    journal   what was made, written before it is made; the ground truth of `down`
    state     what a lab is: load, list, target for the measuring parts
    startup, teardown   the two directions; both may be killed at any moment and run again
    lifting                     full speed for a while, to fill images
    process, loop, throttle, mount, ports, keys, conf, releases, admin   one kind of resource each
"""

from __future__ import annotations

from bathyscope.lab.lifting import unthrottled
from bathyscope.lab.spec import DeviceGroup, LabSpec
from bathyscope.lab.startup import up
from bathyscope.lab.state import LabState, list_labs, load
from bathyscope.lab.teardown import down, down_all

__all__ = ["DeviceGroup", "LabSpec", "LabState", "down", "down_all", "list_labs", "load", "unthrottled", "up"]
