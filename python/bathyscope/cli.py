"""The command line: finds the verbs, and is the only place that prints errors."""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import keyword
import os
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import typer
from typer.core import TyperGroup

from bathyscope import __version__, commands
from bathyscope.errors import BathyscopeError
from bathyscope.interruption import interruptible

EXIT_ERROR = 2


class Verbs(Mapping[str, Any]):
    """The verbs by name. A module of `bathyscope.commands` is imported when its verb is asked for."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            register = getattr(_module(name), "register", None)
            if register is None:
                raise KeyError(name)
            verb = typer.Typer(rich_markup_mode=None)
            register(verb)
            self._built[name] = typer.main.get_group(verb).commands[name]
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in _module_names() if hasattr(_module(name), "register"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _module_names() -> list[str]:
    # The verb `import` is in import_.py: a word of Python is no name for a module.
    names = (entry.name.removesuffix("_") for entry in pkgutil.iter_modules(commands.__path__))
    return sorted(name for name in names if "_" not in name)


def _module(name: str) -> ModuleType | None:
    module = f"{commands.__name__}.{name}{'_' if keyword.iskeyword(name) else ''}"
    return importlib.import_module(module) if name in _module_names() else None


class _Root(TyperGroup):
    """`bathy`: its commands are the verbs, and each of them can be interrupted."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": None})
        self.commands = Verbs()  # type: ignore[assignment]  # never changed after this

    def invoke(self, ctx: Any) -> Any:
        """Run the verb."""
        with interruptible():
            return super().invoke(ctx)


# Typer loads pydantic to convert the value of a flag that was not given, unless the flag has a default.
_FLAGS = {"help": False, "install_completion": False, "show_completion": False}

app = typer.Typer(
    name="bathy",
    cls=_Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help in boxes costs as much again as all the rest of --help
    context_settings={
        "help_option_names": ["-h", "--help"],
        "default_map": _FLAGS | {name: {"help": False} for name in _module_names()},
    },
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"bathy {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Measure, see, size and accelerate the I/O of a Ceph cluster."""


LONGEST_ERROR_LINE = 2000


def print_error(error: BathyscopeError) -> None:
    """Print what is wrong, and what to do about it, to stderr."""
    from bathyscope.commands.talk import say

    for label, text in (("bathy", error.message), ("hint", error.hint)):
        if text:
            # A line may quote a file of any kind.
            say(f"{label}: " + "\n".join(line[:LONGEST_ERROR_LINE] for line in text.split("\n")))


class _PatientPipe(io.FileIO):
    """A standard stream whose reader may go away (`| head`): what is written after that is dropped, without an error.

    The verb goes on to its end, so that what it measures is kept and its exit code is its own.
    """

    def write(self, data: Any) -> int:
        """Write `data`; after the reader has gone, everything goes to /dev/null."""
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return len(data)


def _patient(stream: Any, number: int) -> Any:
    """Return `stream` over a _PatientPipe; a stream that is not the process's own (a test's) stays as it is."""
    if stream is not (sys.__stdout__, sys.__stderr__)[number - 1] or stream is None:
        return stream
    raw = _PatientPipe(number, "w", closefd=False)
    # An unbuffered stream (PYTHONUNBUFFERED) has write_through instead.
    by_line = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=by_line
    )


def _freeze() -> None:
    """Keep Python from looking for cycles in all that was imported before it ends: a fifth of a short command's time.

    DuckDB complains of what is not collected: `store.duck` freezes what was there before it.
    """
    if "duckdb" not in sys.modules:
        gc.freeze()


def main() -> None:
    """Run the command line; exit code 0 done, 1 findings, 2 error."""
    atexit.register(_freeze)
    sys.stdout, sys.stderr = _patient(sys.stdout, 1), _patient(sys.stderr, 2)
    try:
        app()
    except BathyscopeError as error:
        print_error(error)
        sys.exit(EXIT_ERROR)


if __name__ == "__main__":
    main()
