"""The manager of a lab. Its modules are links to those of its release, beside which others can be installed.

A manager loads every module that it finds, used or not, each in an interpreter of its own. Those for which a lab has
nothing are left out: a third of the processor time of its start, and 90 of its 300 MB.
"""

from __future__ import annotations

from pathlib import Path

from bathyscope.lab.bringup import MANAGER, Bringup

# Exporters to services that a lab has not, the REST interface of before, Ceph's examples and tests, and what needs real
# drives, snapshots of crashes sent elsewhere, or an orchestrator's cluster. `bathy` needs none of them.
_LEFT_OUT = {
    "alerts", "diskprediction_local", "feedback", "hello", "influx", "insights", "k8sevents", "localpool",
    "osd_perf_query", "osd_support", "restful", "rook", "selftest", "telegraf", "test_orchestrator", "zabbix",
}  # fmt: skip


def make(bringup: Bringup) -> None:
    """Link the modules of the release, and start the manager. `mgr_module_path` is one directory, not a list."""
    # Of no cluster: the path that is compiled in.
    words = ("ceph-conf", "-c", "/dev/null", "--show-config-value", "mgr_module_path")
    stock = bringup.tools.run(*words).decode().strip()
    for module in Path(f"{bringup.record.root or ''}{stock}").iterdir():
        if module.name in _LEFT_OUT:
            continue
        (bringup.layout.mgr_modules / module.name).symlink_to(f"{stock}/{module.name}")
    bringup.start(MANAGER)
