"""The command line: registers the verbs, and is the only place that prints errors."""

from __future__ import annotations

import sys

import typer

from bathyscope import __version__
from bathyscope.errors import BathyscopeError

EXIT_FINDINGS = 1
EXIT_ERROR = 2

app = typer.Typer(
    name="bathy",
    help="Measure, see, size and accelerate the I/O of a Ceph cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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


def register_verbs() -> None:
    """Attach every verb; each is a module of bathyscope.commands with a `register` function."""
    import importlib

    for verb in ("demo", "lab", "bench", "compare", "report", "runs", "schema", "size"):
        try:
            module = importlib.import_module(f"bathyscope.commands.{verb}")
        except ModuleNotFoundError as error:
            if error.name != f"bathyscope.commands.{verb}":
                raise
            continue
        module.register(app)


def print_error(error: BathyscopeError) -> None:
    """Print what is wrong, and what to do about it, to stderr. Names from outside must not steer the terminal."""
    from bathyscope.views.labels import clean

    for word, said in (("bathy", error.message), ("hint", error.hint)):
        if said:
            sys.stderr.write(f"{word}: " + "\n".join(clean(line) for line in said.split("\n")) + "\n")


def main() -> None:
    """Run the command line; exit code 0 done, 1 findings, 2 error."""
    try:
        register_verbs()
        app()
    except BathyscopeError as error:
        print_error(error)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.stderr.write("bathy: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (head, less); that is its right.
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
