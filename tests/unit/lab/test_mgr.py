"""A lab's manager finds the modules of its release in the lab's own directory."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from bathyscope.lab import mgr
from bathyscope.lab.layout import Layout


@pytest.mark.parametrize("root", [None, "root"])
def test_modules_are_links_as_the_release_sees_them(tmp_path: Path, root: str | None) -> None:
    stock = Path("/usr/share/ceph/mgr") if root else tmp_path / "usr/share/ceph/mgr"
    outside = tmp_path / root / str(stock)[1:] if root else stock
    (outside / "balancer").mkdir(parents=True)
    (outside / "mgr_module.py").touch()
    # A lab has no InfluxDB to send to.
    (outside / "influx").mkdir()
    layout = Layout(tmp_path / "lab")
    layout.mgr_modules.mkdir(parents=True)
    started: list[str] = []
    bringup: Any = types.SimpleNamespace(
        layout=layout,
        record=types.SimpleNamespace(root=str(tmp_path / root) if root else None),
        tools=types.SimpleNamespace(run=lambda *_: f"{stock}\n".encode()),
        start=started.append,
    )
    mgr.make(bringup)
    links = {path.name: str(path.readlink()) for path in layout.mgr_modules.iterdir()}
    assert links == {name: f"{stock}/{name}" for name in ("balancer", "mgr_module.py")}
    assert started == ["mgr.x"]
