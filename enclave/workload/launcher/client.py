"""The broker's side of the launcher: start, watch and kill compartments.

    launcher = LauncherClient.from_environment()
    selftest = run_selftest(launcher)                       # before any secret opens
    memory = launcher.mount_memory(session, size)           # root only: a private tmpfs

    model = launcher.start(CompartmentSpec("model_host", "model", limits, settings={...},
                                           memory=session))
    model.wait_sealed(30)
    here, there = socket.socketpair()                       # result channel, sandbox to gate
    sandbox = launcher.start(CompartmentSpec("sandbox", "run-1", limits, settings={...}),
                             {"result": there.fileno()})
    listener = take_listener(sandbox.control)               # isolation.network
    send_inputs(sandbox.control, [InputFile("bundle", "task.py", size, descriptor), ...])
    sandbox.wait_sealed(30)                                 # raises the compartment's refusal
    ... send_frame(model.control, {...}, [listener.fileno(), ...])
    ... receive_frame(sandbox.control)                      # progress
    end = sandbox.wait(timeout)                             # Exit(code, status, tripwires, ...)

Thread-safe.  When the launcher is gone every call raises `launcher_gone`; the
kernel kills the broker then anyway.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from enclave.core.errors import IsolationRefused, Refusal, RunRefused, rebuild_refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.limits import Limits
from enclave.workload.launcher.protocol import LAUNCHER_VARIABLE

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class CompartmentSpec:
    """What to start: a kind of the closed table, and bounded options.

    kind: `model_host`, `sandbox`, `gate`, or `probe` with `probe` naming the
    kind it stands in for.  settings: JSON, passed to the entry.  threads: the
    thread count put into the environment.  memory: the session whose opened
    files a model host may read through descriptors, or "".
    """

    kind: str
    name: str
    limits: Limits = field(default_factory=Limits)
    settings: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    memory: str = ""
    probe: str = ""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a compartment ended.

    code: `exited` (by itself, see status), `limit_wall`, `limit_cpu`,
    `limit_start` (never sealed), `tripwire`, `killed` (by the broker), `signal`.
    tripwires: names of the forbidden calls.
    """

    code: str
    status: int
    tripwires: tuple[str, ...]
    cpu_milliseconds: int
    wall_milliseconds: int


class Compartment:
    """A started compartment. `control` is the broker's end of its socket."""

    def __init__(
        self, client: LauncherClient, number: int, pid: int, control: socket.socket
    ) -> None:
        self.number = number
        self.pid = pid
        self.control = control
        self.tripped: list[str] = []
        self._client = client
        self._change = threading.Condition()
        self._sealed = False
        self._refusal: Refusal | None = None
        self._exit: Exit | None = None

    def wait_sealed(self, timeout: float) -> None:
        """Return when it is confined; raises its refusal, or `compartment_ended`."""
        with self._change:
            settled = self._change.wait_for(
                lambda: self._sealed or self._refusal is not None or self._exit is not None, timeout
            )
            if self._refusal is not None:
                raise self._refusal
            if not settled:
                raise IsolationRefused("compartment_timeout", expected=f"sealed in {timeout} s")
            if not self._sealed and self._exit is not None:
                raise IsolationRefused(
                    "compartment_ended", expected="sealed", got=f"{self._exit.code}"
                )

    def wait(self, timeout: float) -> Exit:
        """Its end; raises `compartment_timeout` when it still runs then."""
        with self._change:
            self._change.wait_for(lambda: self._exit is not None, timeout)
            if self._exit is None:
                raise IsolationRefused("compartment_timeout", expected=f"an end in {timeout} s")
            return self._exit

    @property
    def exit(self) -> Exit | None:
        """Its end, or None while it runs."""
        return self._exit

    @property
    def refusal(self) -> Refusal | None:
        """Why stage two refused, or None."""
        return self._refusal

    def kill(self) -> None:
        """Kill it with everything in it; `wait` tells when it is gone."""
        self._client.request({"op": "kill", "compartment": self.number})

    def close(self) -> None:
        """Close the control socket."""
        self.control.close()

    def accept_event(self, message: Mapping[str, Any]) -> None:
        """An event from the launcher (called by the client's reader)."""
        with self._change:
            event = message["event"]
            if event == "sealed":
                self._sealed = True
            elif event == "refused":
                self._refusal = _rebuild(message["refusal"])
            elif event == "tripwire":
                self.tripped.append(message["call"])
            elif event == "exit":
                self._exit = Exit(
                    message["code"],
                    message["status"],
                    tuple(message["tripwires"]),
                    message["cpu_milliseconds"],
                    message["wall_milliseconds"],
                )
            self._change.notify_all()


class LauncherClient:
    """Requests over the inherited socket, one at a time; events reach their compartment."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._sending = threading.Lock()
        self._change = threading.Condition()
        self._next_number = 1
        self._answers: dict[int, tuple[dict[str, Any], list[int]]] = {}
        self._compartments: dict[int, Compartment] = {}
        self._early: dict[int, list[Mapping[str, Any]]] = {}
        self._gone = False
        threading.Thread(target=self._read, name="launcher-events", daemon=True).start()

    @classmethod
    def from_environment(cls) -> LauncherClient:
        """The client of the process that the launcher started as broker."""
        number = os.environ.get(LAUNCHER_VARIABLE, "")
        if not number.isdigit():
            raise IsolationRefused(
                "launcher_missing",
                expected="a broker started by the launcher",
                hint="start it with: doubleblind serve",
            )
        peer = socket.socket(fileno=int(number))
        peer.set_inheritable(False)
        return cls(peer)

    def describe(self) -> dict[str, Any]:
        """The launcher's facts for the profile digest, and the tier it can reach."""
        return self.request({"op": "describe"})[0]

    def mount_memory(self, session: str, size: int) -> str:
        """A private tmpfs (noswap, huge pages), 0700, this process's; returns its path.

        Refused: `memory_needs_root` (use a memfd), `tmpfs_noswap`, `memory_exists`.
        """
        answer, _ = self.request({"op": "mount_memory", "session": session, "size": size})
        path: str = answer["path"]
        return path

    def unmount_memory(self, session: str) -> None:
        """Give it back; `memory_busy` tells that descriptors to it were still open."""
        self.request({"op": "unmount_memory", "session": session})

    def start(
        self, spec: CompartmentSpec, descriptors: Mapping[str, int] | None = None
    ) -> Compartment:
        """Start a compartment; `descriptors` are copied to it, the caller keeps its own."""
        names = list(descriptors or {})
        message = {
            "op": "start",
            "kind": spec.kind,
            "probe": spec.probe,
            "name": spec.name,
            "limits": spec.limits.as_json(),
            "threads": spec.threads,
            "settings": dict(spec.settings),
            "descriptors": names,
            "memory": spec.memory,
        }
        answer, received = self.request(message, [(descriptors or {})[name] for name in names])
        control = socket.socket(fileno=received[0])
        compartment = Compartment(self, answer["compartment"], answer["pid"], control)
        with self._change:
            self._compartments[compartment.number] = compartment
            for event in self._early.pop(compartment.number, []):
                compartment.accept_event(event)
            if compartment.exit is not None:
                del self._compartments[compartment.number]
        return compartment

    def request(
        self, message: dict[str, Any], descriptors: list[int] | None = None
    ) -> tuple[dict[str, Any], list[int]]:
        """One request and its answer; raises the launcher's refusal."""
        with self._sending:
            number = self._next_number
            self._next_number += 1
            try:
                send_frame(self._peer, {"id": number, **message}, descriptors or [])
            except RunRefused:
                raise IsolationRefused("launcher_gone", expected="a live launcher") from None
        with self._change:
            self._change.wait_for(lambda: number in self._answers or self._gone, _ANSWER_SECONDS)
            if number not in self._answers:
                raise IsolationRefused("launcher_gone", expected="an answer of the launcher")
            answer, received = self._answers.pop(number)
        if "refusal" in answer:
            raise _rebuild(answer["refusal"])
        return answer["answer"], received

    def _read(self) -> None:
        while True:
            try:
                message, descriptors = receive_frame(self._peer, max_descriptors=1)
            except Refusal:
                break
            with self._change:
                if "reply" in message:
                    self._answers[message["reply"]] = (message, descriptors)
                else:
                    self._deliver(message)
                self._change.notify_all()
        with self._change:
            self._gone = True
            self._change.notify_all()

    def _deliver(self, message: Mapping[str, Any]) -> None:
        number = message["compartment"]
        compartment = self._compartments.get(number)
        if compartment is None:
            self._early.setdefault(number, []).append(message)
            return
        compartment.accept_event(message)
        if compartment.exit is not None:
            del self._compartments[number]


def _rebuild(fields: Mapping[str, str]) -> Refusal:
    return rebuild_refusal(
        fields["stage"],
        fields["code"],
        expected=fields["expected"],
        got=fields["got"],
        hint=fields["hint"],
    )
