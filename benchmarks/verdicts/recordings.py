"""The cases as an operator has them: clients make the loads, a recording looks on, and says what limits them."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bed import Bed, tenant_fio
from cases import Case
from recorded import expected, judged
from truth import Expect, Judged

from bathyscope import lab
from bathyscope.host.local import LocalHost
from bathyscope.spec.collect import CollectSpec
from bathyscope.store import RunDirectory, Workspace
from bathyscope.units import parse_bytes
from bathyscope.watch.collecting import collect
from bathyscope.window.recording import load_of, question_of

SECONDS = 20.0
"""Length of a recording; its first and its last INTERVAL_S are left out, in which not all sources have looked yet."""
INTERVAL_S = 2.0
POOL, IMAGE, IMAGE_SIZE = "clients", "vm", "512M"
_PATTERN = re.compile(r"((?:rand)?(?:read|write))-(\d+[KM])-qd(\d+)")


def can_be_recorded(case: Case) -> bool:
    """Return whether a case is about what clients do: an image that nobody filled is not, nor a layer below images."""
    return "layers" not in case.plan and case.plan.get("prefill", True)


def record_case(
    bed: Bed, case: Case, workspace: Path, seconds: float = SECONDS
) -> Iterator[tuple[RunDirectory, Judged]]:
    """Yield the recording of each load of a case, and its verdict.

    What was injected is undone, and the pool removed, however it ends.
    """
    try:
        with contextlib.ExitStack() as stack:
            if case.begins == "run":
                stack.enter_context(case.inject(bed))
            stack.enter_context(_image(bed, case))
            for pattern, expect in case.loads.items():
                with contextlib.ExitStack() as load:
                    if case.begins == "load":
                        load.enter_context(case.inject(bed))
                    load.enter_context(bed.background(*_client(pattern)))
                    run = _record(bed, workspace, seconds)
                yield run, _judged(case, pattern, expected(expect), run)
    finally:
        bed.settle()


@contextlib.contextmanager
def _image(bed: Bed, case: Case) -> Iterator[None]:
    """Make a pool as the plan of the case says, and in it a full image whose I/O reaches the OSDs."""
    axes, image = case.plan.get("axes", {}), f"{POOL}/{IMAGE}"
    classes = case.plan.get("device_classes", ())
    with bed.pool(POOL, 32):
        if classes:
            (name,) = classes
            bed.run("ceph", "osd", "crush", "rule", "create-replicated", f"of-{name}", "default", "host", name)
            bed.run("ceph", "osd", "pool", "set", POOL, "crush_rule", f"of-{name}")
        if "replicas" in case.plan:
            size = str(case.plan["replicas"])
            bed.run("ceph", "osd", "pool", "set", POOL, "size", size, "--yes-i-really-mean-it")
        bed.settle()
        words = ["--size", str(axes.get("image_size", IMAGE_SIZE))]
        words += ["--object-size", str(axes["object_size"])] if "object_size" in axes else []
        bed.run("rbd", "create", image, *words)
        bed.run("rbd", "config", "image", "set", image, "rbd_cache", "false")
        with lab.unthrottled(bed.state):
            bed.run(*tenant_fio(IMAGE, POOL), "--rw=write", "--bs=1M", "--iodepth=8")
        yield


def _client(pattern: str) -> list[str]:
    match = _PATTERN.fullmatch(pattern)
    assert match is not None, pattern
    operation, size, depth = match.groups()
    load = [f"--rw={operation}", f"--bs={parse_bytes(size)}", f"--iodepth={depth}", "--time_based", "--runtime=3600"]
    return [*tenant_fio(IMAGE, POOL), *load]


def _record(bed: Bed, workspace: Path, seconds: float) -> RunDirectory:
    target = bed.target
    return collect(
        LocalHost(), Workspace(workspace), CollectSpec(duration_s=seconds, interval_s=INTERVAL_S), target,
        target_now=lambda: target, tidy=lambda _session: None, note=lambda text: print(f"  {text}", file=sys.stderr),
        tick=lambda _seconds: None,
    )  # fmt: skip


def _judged(case: Case, pattern: str, expect: Expect, run: RunDirectory) -> Judged:
    whole, edge_ns = question_of(run), round(INTERVAL_S * 1e9)
    point = load_of(run, dataclasses.replace(whole, start_ns=whole.start_ns + edge_ns, end_ns=whole.end_ns - edge_ns))
    print(f"  {pattern}: {point.verdict.limit} {point.verdict.subject}", file=sys.stderr)
    return judged(case, pattern, expect, point)
