"""The checks of a client host before the first change: it must be reachable, have fio's engines, and our time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bathyscope.bench.preflight import check_engines
from bathyscope.errors import EnvironmentError_
from bathyscope.fields import last_line
from bathyscope.host import Elsewhere, Host, NodeRequest, ProcessRequest
from bathyscope.host.ssh import login_argv, ssh_argv
from bathyscope.layers import LAYERS
from bathyscope.recording.collect import to_raw
from bathyscope.sources.node_clock import clock_of
from bathyscope.spec import StepSpec, Target
from bathyscope.units import format_duration_ns

# Half a sample of the usual period.
_CLOCK_OFFSET_NS = 100_000_000
_CLOCK_LOOKS = 8
_LOGIN_S = 15.0


def check(host: Host, target: Target, steps: Sequence[StepSpec], note: Callable[[str], None]) -> None:
    """Raise EnvironmentError_ when the client host cannot make the load of `steps`, or its clock is not ours.

    What fio logs there has that machine's times, and the samples of all others are laid over them.
    """
    client = target.client_host
    layers = [(LAYERS[step.layer], step) for step in steps]
    needed = {layer.load_generators[step.load_generator] for layer, step in layers if layer.needs_cluster}
    if client is None or not needed:
        return
    there = Elsewhere(login_argv(client.ssh, client.name))

    def output(*argv: str) -> str:
        completed = host.run(ProcessRequest(argv[-1].lstrip("-"), argv, timeout_s=_LOGIN_S, elsewhere=there))
        if completed.exit_code != 0:
            raise EnvironmentError_(
                f"{' '.join(argv)} on {client.name} failed: {last_line(completed.stderr)}",
                hint=f"it needs python3, fio, and a login without questions: ssh -o BatchMode=yes {client.name} true",
            )
        return completed.stdout.decode(errors="replace")

    version = output("fio", "--version").strip()
    check_engines(needed - {""}, output("fio", "--enghelp"), f"fio on {client.name} ({version})")
    argv = ssh_argv(client.ssh, client.name)
    asked = [NodeRequest(f"clock-{number}", argv, {"paths": []}, _LOGIN_S) for number in range(_CLOCK_LOOKS)]
    clock = clock_of(to_raw(answer.completed) for answer in host.ask_nodes(asked))
    if clock is None:
        raise EnvironmentError_(f"the clock of {client.name} could not be read", hint="try again; look at its load")
    if abs(clock.offset_ns) > _CLOCK_OFFSET_NS + clock.error_ns:
        apart = format_duration_ns(abs(clock.offset_ns))
        raise EnvironmentError_(
            f"the clock of {client.name} is {apart} {'ahead of' if clock.offset_ns > 0 else 'behind'} this machine's",
            hint="synchronise both: chronyc tracking, chronyc makestep",
        )
    note(f"load from {client.name}: {version}")
