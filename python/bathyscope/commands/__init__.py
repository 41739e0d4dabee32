"""One file per verb: the only place where sources, recording, store, analysis and views meet.

A module whose name has no underscore is light: it imports typer, the shared options and the standard library, and what
its verb needs is imported when the verb runs. So `--help`, `--version` and completion start at once. A module with a
function `register` is a verb. Helpers of one verb are named after it: `bench_progress`.
"""
