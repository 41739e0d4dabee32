from __future__ import annotations

import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bathyscope.host.process import ProcessIdentity
from bathyscope.lab import journal


def test_no_journal_means_no_resources(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "absent") == journal.Resources()


def test_what_is_written_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = journal.Journal(path)
    book.cgroup(Path("/sys/fs/cgroup/blkio/x"))
    book.loop(tmp_path / "a b\n\"c'")
    book.link("by-1a2b3c4d")
    book.mount(tmp_path / "root")
    book.mount(tmp_path / "root/proc")
    book.directory(tmp_path / "outside")
    first, second = ProcessIdentity(10, 500, "boot"), ProcessIdentity(11, 501, "boot")
    book.process("osd.0", first)
    book.process("osd.0", second)
    book.helper(ProcessIdentity(12, 502, "boot"))
    resources = journal.read(path)
    assert resources.cgroups == ["/sys/fs/cgroup/blkio/x"]
    assert resources.loop_backings == [str(tmp_path / "a b\n\"c'")]
    assert resources.links == ["by-1a2b3c4d"]
    assert resources.mounts == [str(tmp_path / "root"), str(tmp_path / "root/proc")]
    assert resources.directories == [str(tmp_path / "outside")]
    assert resources.processes == [("osd.0", first), ("osd.0", second)]
    assert resources.helpers == [ProcessIdentity(12, 502, "boot")]


@given(cut=st.integers(min_value=0, max_value=200))
def test_a_torn_write_loses_only_itself(tmp_path_factory, cut: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j"
    book = journal.Journal(path)
    book.loop(Path("/first"))
    whole = path.stat().st_size
    book.loop(Path("/second"))
    data = path.read_bytes()
    kept = min(whole + cut, len(data))
    path.write_bytes(data[:kept])
    # Whoever goes on after the kill must be able to write below the torn line.
    book.loop(Path("/third"))
    expected = ["/first", "/second", "/third"] if kept >= len(data) - 1 else ["/first", "/third"]
    assert journal.read(path).loop_backings == expected


def test_garbage_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(
        b'\xff\xfe\n[]\n3\n{"make":"process","pid":"x"}\n{"make":"loop"}\n{"make":"link"}\n{"make":"mount","path":"/m"}\n'
    )
    assert journal.read(path) == journal.Resources(mounts=["/m"])


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    book = journal.Journal(tmp_path / "j")
    threads = [
        threading.Thread(target=lambda n=n: [book.mount(Path(f"/{n}/{i}")) for i in range(50)]) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(journal.read(tmp_path / "j").mounts) == sorted(f"/{n}/{i}" for n in range(8) for i in range(50))
