"""Makes fixtures of kept recordings: the tables that the judged views read, small enough for the repository.

    PYTHONPATH=benchmarks/verdicts python -m benchmarks.blame.fixtures DIR [CASE…]

Of each case kept in DIR the newest recording becomes tests/fixtures/blame/CASE/.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.verdicts.fixtures import write_rows

from bathyscope.records import ClusterStatus, Collection, Image, ImageIo, PerfCounter, PgIo, Placement
from bathyscope.store import RunDirectory, Workspace, tables

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "blame"
READ = (ClusterStatus, Collection, Image, ImageIo, PerfCounter, PgIo, Placement)
# The counters of an OSD's own work for clients, and of its store.
_SECTIONS = ("osd", "bluestore")
_COUNTERS = "op_r|op_w|op_rw|.*commit_lat"
_SUFFIXES = "(_latency|_in_bytes|_out_bytes)?"


def write(run: RunDirectory, directory: Path) -> int:
    """Write the fixture of a recording, in place of the one that is there, and return its size in bytes."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    span = {"started_ns": run.info.started_ns, "ended_ns": run.info.ended_ns}
    (directory / "run.json").write_text(json.dumps(span) + "\n")
    for record in READ:
        rows = run.table(record)
        if record is PerfCounter:
            named = pc.match_substring_regex(rows.column("name"), f"^({_COUNTERS}){_SUFFIXES}$")
            rows = rows.filter(pc.and_(named, pc.is_in(rows.column("section"), pa.array(_SECTIONS))))
        if rows.num_rows:
            write_rows(rows, directory / f"{record.TABLE}.parquet")
    return sum(file.stat().st_size for file in directory.iterdir())


def restore(directory: Path, workspace: Path) -> str:
    """Make a recording of a fixture in a workspace, and return its id."""
    span = json.loads((directory / "run.json").read_text())
    run = Workspace(workspace).create_run(kind="collect", started_ns=span["started_ns"], target={"name": "lab"})
    with run:
        with run.begin_segment("20260101T000000.000Z") as segment:
            found = tables.parquet_files(directory)
            for record in READ:
                if record.TABLE in found:
                    segment.table(record, tables.read(record.TABLE, [found[record.TABLE]]))
            segment.commit()
        run.update(status="done", ended_ns=span["ended_ns"])
    return run.id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="DIR", help="directory with the recordings")
    parser.add_argument("case", nargs="*", metavar="CASE", help="only these")
    options = parser.parse_args()
    for kept in sorted(options.directory.iterdir()):
        if not options.case or kept.name in options.case:
            done = [entry.id for entry in Workspace(kept).runs() if entry.status == "done"]
            size_bytes = write(Workspace(kept).open_run(max(done)), FIXTURES / kept.name)
            print(f"{kept.name:<24}{size_bytes / 1000:>7.1f} kB")


if __name__ == "__main__":
    main()
