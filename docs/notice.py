"""Write the list of crates in NOTICE from Cargo.lock: what is linked into the programs and the Python module.

The crates of tests and of other systems are not among them. Offline: cargo must have their sources already.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTICE = ROOT / "NOTICE"
TITLE = "Crates that are linked into the programs, with their licences; the texts and authors are in their sources:\n"
# What a crate is linked into depends on the architecture in no line of the list.
_TARGET = "x86_64-unknown-linux-gnu"


def crates() -> list[str]:
    """Return a line for each crate: its name and version, its licences. Raises CalledProcessError."""
    # Build scripts and the libraries of procedural macros are programs of the build; those macros make our code.
    words = ["cargo", "tree", "--offline", "--locked", "--workspace", "--edges", "normal", "--target", _TARGET]
    form = ["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"]
    done = subprocess.run([*words, *form], cwd=ROOT, capture_output=True, text=True, check=True)
    found = set()
    for line in filter(None, done.stdout.splitlines()):
        package, _, licence = line.partition("|")
        name, version, *source = package.split(" ", 2)
        # A crate of ours has its directory there.
        if not any(str(ROOT) in word for word in source):
            found.add(f"{name} {version.removeprefix('v')}: {licence.replace('/', ' OR ')}")
    return sorted(found)


def text() -> str:
    """Return the whole of NOTICE. Raises CalledProcessError."""
    return (
        NOTICE.read_text().partition(TITLE)[0].rstrip("\n") + f"\n\n{TITLE}" + "".join(f"{line}\n" for line in crates())
    )


def main() -> int:
    """Write NOTICE."""
    NOTICE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
