"""Writing so that a file or directory is there whole or not at all, also after a power cut.

The order is always: write under a temporary name, fsync the content, rename, fsync the parent
directory. A name that begins with a dot is never part of a run; leftovers of a killed process carry
such names and are swept by the next writer.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def fsync_path(path: Path) -> None:
    """Flush one file or directory to its device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path) -> None:
    """Flush every file and directory below `root`, and `root` itself, content before names."""
    for directory, _, files in os.walk(root, topdown=False):
        for name in files:
            file = Path(directory) / name
            if not file.is_symlink():
                fsync_path(file)
        fsync_path(Path(directory))


def write_file(path: Path, content: bytes) -> None:
    """Put a file in place, whole or not at all. Raises OSError and leaves what was there before."""
    partial = _partial_name(path)
    try:
        with partial.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_path(path.parent)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Put a Parquet file in place, whole or not at all. Raises OSError or pa.ArrowException."""
    partial = _partial_name(path)
    try:
        with partial.open("xb") as stream:
            pq.write_table(table, stream, compression="zstd", compression_level=3)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_path(path.parent)


def put_directory(partial: Path, final: Path) -> None:
    """Flush a directory that was filled under a temporary name and move it into place.

    Raises OSError when `final` exists already and is not empty.
    """
    fsync_tree(partial)
    partial.rename(final)
    fsync_path(final.parent)


def remove_directory(path: Path) -> None:
    """Take a directory out of sight with one rename, then delete it; nobody ever sees half of it."""
    hidden = path.with_name(f".removed-{path.name}-{secrets.token_hex(4)}")
    try:
        path.rename(hidden)
    except FileNotFoundError:
        return
    fsync_path(path.parent)
    shutil.rmtree(hidden, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Delete leftovers (.partial-…, .removed-…) of killed writers. Only the holder of the lock may call it."""
    for entry in directory.iterdir() if directory.is_dir() else ():
        if entry.name.startswith((".partial-", ".removed-")):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def partial_directory(final: Path) -> Path:
    """Make and return an empty directory beside `final` that `put_directory` can move there."""
    partial = _partial_name(final)
    partial.mkdir(parents=True)
    return partial


def _partial_name(path: Path) -> Path:
    return path.with_name(f".partial-{path.name}-{secrets.token_hex(4)}")
