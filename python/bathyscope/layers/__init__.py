"""The layers of the ladder, and how the answer of a load process is kept with the files that it wrote."""

from __future__ import annotations

import contextlib
from pathlib import PurePosixPath

from bathyscope.host import Completed, Host, ProcessRequest
from bathyscope.layers import common
from bathyscope.layers.base import (
    DiskNeed,
    ImageNeed,
    Layer,
    LayerContext,
    LayerRows,
    Need,
    ObjectsNeed,
    PoolNeed,
)
from bathyscope.layers.disk import DiskLayer
from bathyscope.layers.rados import RadosLayer
from bathyscope.layers.rbd import RbdLayer
from bathyscope.sources import fio_command, rados_bench
from bathyscope.sources.base import RawAnswer, to_raw

REGISTRY: dict[str, Layer] = {layer.name: layer for layer in (DiskLayer(), RadosLayer(), RbdLayer())}

__all__ = [
    "REGISTRY",
    "DiskNeed",
    "ImageNeed",
    "Layer",
    "LayerContext",
    "LayerRows",
    "Need",
    "ObjectsNeed",
    "PoolNeed",
    "answer_of",
    "check_prefill",
    "output_paths",
]


def output_paths(request: ProcessRequest) -> tuple[str, ...]:
    """Return the paths of the files that a load process writes, as the process sees them."""
    if request.argv[0] == "rados" and "-o" in request.argv:
        return (rados_bench.output_path(request),)
    return fio_command.log_paths(request) if request.argv[0] == "fio" else ()


def check_prefill(need: Need, answer: RawAnswer) -> None:
    """Raise ToolError unless the process of a prefill wrote all of what `need` asks for."""
    if not isinstance(need, PoolNeed):
        common.check_prefill(answer, need.total_bytes if isinstance(need, ObjectsNeed) else need.size_bytes)


def answer_of(host: Host, completed: Completed) -> RawAnswer:
    """Return what a load process answered, with every file that it wrote. Files that are not there are left out."""
    request = completed.request
    files = []
    if isinstance(request, ProcessRequest):
        for path in output_paths(request):
            with contextlib.suppress(OSError):
                files.append((PurePosixPath(path).name, host.read((request.root or "") + path)))
    return to_raw(completed, files)
