"""The entry of a probe compartment: try each probe, report the outcomes."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Mapping
from typing import Any, Final, cast, get_args

from enclave.core.fields import Fields
from enclave.workload.frames import send_frame
from enclave.workload.isolation.probes.probe import (
    Outcome,
    Probe,
    Targets,
    parse_targets,
    try_probe,
)
from enclave.workload.isolation.probes.registry import PROBES

_PATIENCE: Final = 5.0


def run(*, control: socket.socket, settings: Mapping[str, Any]) -> int:
    """Try the probes that `settings` names and send `{"event":"probe","id","outcome"}` for each.

    settings: `{"probes":[ids],"forked":bool,"targets":{...}}`.  Forked, each
    probe has its own child, which may die; otherwise all run in this process.
    """
    fields = Fields(settings, "settings")
    probes = [PROBES[name] for name in fields.identifiers("probes", 1, 256)]
    forked = fields.flag("forked")
    targets = parse_targets(fields.mapping("targets", 1, 64))
    fields.done()
    for probe in probes:
        outcome = fork_probe(probe, targets) if forked else try_probe(probe, targets)
        send_frame(control, {"event": "probe", "id": probe.id, "outcome": outcome})
    send_frame(control, {"event": "done"})
    return 0


def fork_probe(probe: Probe, targets: Targets) -> Outcome:
    """Run one probe in a child: `killed` when a signal ended it, `failed` when it hangs."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            os.write(write, try_probe(probe, targets).encode())
        finally:
            os._exit(0)
    os.close(write)
    told = b""
    if select.select([read], [], [], _PATIENCE)[0]:
        told = os.read(read, 64)
    else:
        os.kill(pid, signal.SIGTERM)  # not SIGKILL: a hanging probe is no killed one
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.waitstatus_to_exitcode(status) == -signal.SIGKILL:
        return "killed"
    outcome = told.decode("ascii", "replace")
    return cast(Outcome, outcome) if outcome in get_args(Outcome) else "failed"
