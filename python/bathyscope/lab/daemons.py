"""Starting a Ceph daemon of a lab: on this machine or in its node, inside another release's root where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bathyscope.host import outliving
from bathyscope.host.local import FOREIGN_VARIABLES
from bathyscope.host.process import ProcessIdentity
from bathyscope.lab import journal, nodes
from bathyscope.lab.layout import Layout


def start(
    name: str,
    layout: Layout,
    book: journal.Journal,
    *,
    root: str | None,
    node: ProcessIdentity | None = None,
    before: Callable[[ProcessIdentity], None] = lambda _: None,
) -> outliving.Started:
    """Start a daemon ("osd.3") in the foreground of a session of its own; journaled, then `before`, then it runs.

    `node` is the first process of its node, None for one that runs on this machine itself.
    """
    kind, _, daemon_id = name.partition(".")

    def announce(identity: ProcessIdentity) -> None:
        book.process(name, identity)
        before(identity)

    # Started again in a new PID namespace, a daemon can have its old pid, and peers would take it for the old one.
    environment = ["env", "CEPH_USE_RANDOM_NONCE=1"] if node is not None else []
    # The gateway is a client of the cluster.
    program = ["radosgw", "-f", "-n", f"client.{name}"] if kind == "rgw" else [f"ceph-{kind}", "-f", "-i", daemon_id]
    return outliving.start(
        [*environment, *program, "-c", str(layout.conf)],
        log=layout.log / f"{name}.out",
        announce=announce,
        root=Path(root) if root is not None else None,
        wrapper=nodes.inside(node.pid) if node is not None else (),
        announce_wrapper=book.helper,
        without=FOREIGN_VARIABLES,
    )
