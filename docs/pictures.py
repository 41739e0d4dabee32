"""Make the pictures of README and guides from the runs of a demo: `make pictures`.

The report is photographed by headless Chromium; the live screen replays the demo's recording and exports itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from textual.pilot import Pilot

from bathyscope.analysis.activity import VIEWS
from bathyscope.store import Workspace
from bathyscope.views.tui.top import Top
from bathyscope.watch.feeds import ReplayFeed

PICTURES = Path(__file__).parent / "pictures"
REPORT_SIZE = (1280, 2050)
TERMINAL_SIZE = (100, 26)
ROOTS = ("devices", "clients", "osds", "nodes", "pools", "slow")
# A page that loads fonts from elsewhere would look other ways without a network.
_FONT = re.compile(r",\s*url\(\"https://[^)]*\) format\(\"woff2?\"\)|\s*url\(\"https://[^;]*;")


def report(page: Path, picture: Path) -> None:
    """Photograph the top of a report."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is missing: make setup .venv/.stamps/dev installs it")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
                *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
                f"--user-data-dir={profile}", f"--window-size={REPORT_SIZE[0]},{REPORT_SIZE[1]}",
                "--virtual-time-budget=10000", f"--screenshot={picture}", page.resolve().as_uri(),
            ],
            check=True, capture_output=True, timeout=180,
        )  # fmt: skip


async def _drawn(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def screens(run: str, workspace: Path) -> dict[str, str]:
    """Return name → picture of the live screen over a recording."""
    found = {}
    for name, view, keys in (
        ("top-images", "devices", ()),
        ("top-images-light", "devices", ("d",)),
        ("top-zones", "devices", ("enter",)),
        ("top-osds", "osds", ()),
    ):
        app = Top(ReplayFeed(Workspace(workspace).open_run(run)), list(ROOTS), view, known=VIEWS, replay=True)
        async with app.run_test(size=TERMINAL_SIZE) as pilot:
            await _drawn(pilot)
            await _drawn(pilot, *keys)
            found[name] = _FONT.sub("", app.export_screenshot(title="bathy top"))
    return found


def main() -> None:
    """Run a demo, or take the runs of one that lie in BATHY_WORKSPACE, and write all pictures."""
    with tempfile.TemporaryDirectory() as directory:
        given = os.environ.get("BATHY_WORKSPACE")
        workspace, page = Path(given or directory), Path(directory) / "report.html"
        bathy = (sys.executable, "-m", "bathyscope.cli")
        if given is None:
            subprocess.run([*bathy, "demo", "-o", str(page), "-w", str(workspace)], check=True)
        newest = {run.kind: run.id for run in sorted(Workspace(workspace).runs(), key=lambda run: run.id)}
        if given is not None:
            words = ("report", newest["bench"], "--recording", newest["collect"], "-o", str(page), "-w", str(workspace))
            subprocess.run([*bathy, *words], check=True)
        report(page, PICTURES / "report.png")
        for name, picture in asyncio.run(screens(newest["collect"], workspace)).items():
            (PICTURES / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    main()
