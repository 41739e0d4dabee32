"""The exception tree: everything that a user can cause, with what to do about it.

    BathyscopeError
    ├── UsageError          the request itself is wrong (option, plan, name)
    │   └── PlanError       a plan file is invalid: line, key, nearest valid name
    ├── EnvironmentError_   this machine lacks something (fio, an engine, root, space)
    │   └── ToolError       a program that we started failed
    ├── ClusterError        the cluster does not answer, refuses, or is unfit
    │   ├── UnreachableError  no monitor answered in time
    │   ├── DeniedError       the keyring or its caps are not enough
    │   ├── PolicyError       the cluster's settings forbid it, whoever asks
    │   └── UnhealthyError    not fit for a load, or a limit of the plan stopped it
    ├── LabError            the disposable cluster could not be built or taken down
    ├── CacheError          a cache or a source of one cannot be made, started, stopped or asked
    │   └── CacheDownError    no daemon serves the cache
    ├── StoreError          a workspace, run directory or journal cannot be used
    │   ├── FormatVersionError  written by another version
    │   └── UntrustedError      another user owns it or can write it
    ├── BusyError           another process holds the workspace, the run or the lab
    ├── ParseError          a tool printed something that the parser does not know
    └── AnalysisError       the records cannot support the figure asked for

`bathyscope.cli` is the only place that prints them: one line that says what is wrong, and a
`hint:` line. Exit code 2. Findings (exit code 1) are not errors.
"""

from __future__ import annotations


class BathyscopeError(Exception):
    """Base of every error that a user can cause. `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(BathyscopeError):
    """The request itself is wrong: an option, a name, a combination."""


class PlanError(UsageError):
    """A plan is invalid. `line` is 1-based in the plan file when known; `key` is the dotted path."""

    def __init__(
        self, message: str, *, hint: str | None = None, key: str | None = None, line: int | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.line = line


class EnvironmentError_(BathyscopeError):  # noqa: N801, N818 - the plain name is a builtin alias of OSError
    """This machine lacks something: a program, an engine, a privilege, space."""


class ToolError(EnvironmentError_):
    """A program that we started failed; the message quotes its last line of stderr."""


class ClusterError(BathyscopeError):
    """The cluster does not answer, refuses, or is not fit for what was asked."""


class UnreachableError(ClusterError):
    """No monitor answered within the time limit."""


class DeniedError(ClusterError):
    """The keyring is wrong, or its caps do not allow the command."""


class PolicyError(ClusterError):
    """A setting of the cluster forbids it to every key: mon_allow_pool_delete, mon_allow_pool_size_one, a flag."""


class UnhealthyError(ClusterError):
    """The cluster is not fit for a load, or a limit of the plan stopped one."""


class LabError(BathyscopeError):
    """The disposable cluster could not be built, found or taken down."""


class CacheError(BathyscopeError):
    """A cache or a source of one cannot be made, started, stopped or asked."""


class CacheDownError(CacheError):
    """No daemon serves the cache."""


class StoreError(BathyscopeError):
    """A workspace or run directory cannot be read or written."""


class FormatVersionError(StoreError):
    """A run directory or a lab was written by another version of bathyscope, whose format this one does not read."""


class UntrustedError(StoreError):
    """A file or directory of our own state is not ours alone: another user owns it or can write it."""


class BusyError(BathyscopeError):
    """Another process holds the workspace, the run or the lab."""


class ParseError(BathyscopeError):
    """A tool printed something that the parser does not understand."""


class AnalysisError(BathyscopeError):
    """The records cannot support the figure that was asked for."""
