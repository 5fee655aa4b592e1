"""What a probe is: one attempt, what should come of it, and what it aims at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from enclave.core.fields import Fields

Outcome = Literal["refused", "killed", "limited", "open", "failed"]
"""`open`: the attempt succeeded. `failed`: the probe itself did not work, which proves nothing."""

EVERYWHERE: Final = ("sandbox", "model_host", "gate")
SANDBOX_ONLY: Final = ("sandbox",)
CONFINED: Final = ("sandbox", "gate")


@dataclass(frozen=True, slots=True)
class Targets:
    """Canaries that a probe tries to reach, and the limits that should stop it.

    Ports and addresses of listeners outside, a file and a shared-memory file
    that anybody may read, a process of another session, a secret value that
    an environment outside holds, a directory of the runtime.
    """

    tcp4: int
    tcp6: int
    udp: int
    abstract: str
    unix: str
    file: str
    shm: str
    pid: int
    value: str
    runtime: str
    scratch: str
    tmp_bytes: int
    file_bytes: int
    memory_bytes: int
    processes: int
    open_files: int

    def as_json(self) -> dict[str, Any]:
        """For the settings of a probe compartment."""
        return asdict(self)


def parse_targets(value: Mapping[str, Any]) -> Targets:
    """Read targets out of settings."""
    fields = Fields(value, "targets")
    found: dict[str, Any] = {}
    for name in ("tcp4", "tcp6", "udp"):
        found[name] = fields.integer(name, 0, 65535)
    for name in ("abstract", "unix", "file", "shm", "value", "runtime", "scratch"):
        found[name] = fields.text(name, max_length=1024)
    for name in ("pid", "tmp_bytes", "file_bytes", "memory_bytes", "processes", "open_files"):
        found[name] = fields.integer(name, 1, 2**53 - 1)
    fields.done()
    return Targets(**found)


@dataclass(frozen=True, slots=True)
class Probe:
    """One attempt.

    `attempt` returns `open` or `limited`; an OSError is `refused`.  `expected`
    is the one outcome that a confined compartment gives; `call` names the
    tripwire for `killed`.  `kinds` are the compartments where it makes sense.
    """

    id: str
    name: str
    attempt: Callable[[Targets], Outcome]
    expected: Outcome = "refused"
    call: str = ""
    kinds: tuple[str, ...] = EVERYWHERE


def try_probe(probe: Probe, targets: Targets) -> Outcome:
    """Run the attempt in this process and name what came of it."""
    try:
        return probe.attempt(targets)
    except OSError:
        return "refused"
    except Exception:  # noqa: BLE001 - whatever it is, the probe did not do its work
        return "failed"
