"""The manager of a lab. Its modules are links to those of its release, beside which others can be installed."""

from __future__ import annotations

from pathlib import Path

from bathyscope.lab.bringup import MANAGER, Bringup


def make(bringup: Bringup) -> None:
    """Link the modules of the release, and start the manager. `mgr_module_path` is one directory, not a list."""
    # Of no cluster: the path that is compiled in.
    words = ("ceph-conf", "-c", "/dev/null", "--show-config-value", "mgr_module_path")
    stock = bringup.tools.run(*words).decode().strip()
    for module in Path(f"{bringup.record.root or ''}{stock}").iterdir():
        (bringup.layout.mgr_modules / module.name).symlink_to(f"{stock}/{module.name}")
    bringup.start(MANAGER)
