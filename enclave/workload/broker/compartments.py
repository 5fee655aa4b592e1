"""What the broker asks of the launcher for a run: model host and sandbox, wired together."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from enclave.core.errors import Refusal, RunRefused, rebuild_refusal
from enclave.core.plan import Plan
from enclave.workload.broker.progress import SteadyProgress, paced
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.inputs import InputFile, send_inputs
from enclave.workload.isolation.limits import GIB, MIB, Limits
from enclave.workload.isolation.network import take_listener
from enclave.workload.launcher.client import Compartment, CompartmentSpec, LauncherClient
from enclave.workload.opening import OpenedArtifact

START_SECONDS: Final = 60.0
LOAD_SECONDS: Final = 900.0
_STOP_SECONDS: Final = 20.0
_ROOM: Final = 4 * GIB
_MODEL_PROCESSES: Final = 256


class ModelHost:
    """The compartment that holds the weights."""

    def __init__(self, launcher: LauncherClient, plan: Plan, name: str, memory: str) -> None:
        limits = Limits(
            wall_seconds=plan.limits.wall_seconds + int(LOAD_SECONDS),
            cpu_seconds=(plan.limits.wall_seconds + int(LOAD_SECONDS)) * plan.engine.threads,
            # Address space: libraries, the mapped weights and one converted copy of them.
            memory_bytes=_ROOM * 4 + 4 * plan.model.max_bytes,
            processes=_MODEL_PROCESSES + plan.engine.threads,
            open_files=4096,
        )
        spec = CompartmentSpec(
            "model_host", name, limits, threads=plan.engine.threads, memory=memory
        )
        self._engine = plan.engine.to_json()
        self._compartment = launcher.start(spec)

    def load(self, opened: OpenedArtifact) -> Mapping[str, str]:
        """Hand over the opened files; returns the engine's facts for the receipt."""
        self._compartment.wait_sealed(START_SECONDS)
        message = {
            "op": "load",
            "files": [{"path": file.path, "size": file.size} for file in opened.files],
            "engine": self._engine,
        }
        answer = self._ask(message, [file.fd for file in opened.files], "loaded", LOAD_SECONDS)
        facts: Mapping[str, str] = answer["engine"]
        return facts

    def serve(self, listener: socket.socket) -> None:
        """Answer the sandbox on its own listener."""
        self._ask({"op": "serve"}, [listener.fileno()], "serving", START_SECONDS)

    def close(self) -> None:
        """End it: its memory goes with it."""
        close_compartment(self._compartment)

    def _ask(
        self, message: Mapping[str, Any], descriptors: list[int], expected: str, seconds: float
    ) -> dict[str, Any]:
        self._compartment.control.settimeout(seconds)
        try:
            send_frame(self._compartment.control, message, descriptors)
            answer, _ = receive_frame(self._compartment.control)
        except RunRefused as refusal:
            raise _explain(self._compartment, refusal) from None
        if answer.get("op") == "refused":
            refused = dict(answer["refusal"])
            raise rebuild_refusal(refused.pop("stage"), refused.pop("code"), **refused)
        if answer.get("op") != expected:
            raise RunRefused("model_host_answer", expected=expected)
        return answer


class Sandbox:
    """The compartment that holds the eval code and the prompts."""

    def __init__(
        self, launcher: LauncherClient, plan: Plan, name: str, result_end: socket.socket
    ) -> None:
        bounds = plan.limits
        limits = Limits(
            wall_seconds=bounds.wall_seconds,
            cpu_seconds=bounds.cpu_seconds,
            memory_bytes=bounds.memory_bytes,
            tmp_bytes=max(bounds.tmp_bytes, MIB),
            file_bytes=max(bounds.tmp_bytes, MIB),
            processes=bounds.processes,
            open_files=bounds.open_files,
            bundle_bytes=_tree_bytes(plan.bundle.max_bytes, plan.bundle.max_files),
            suite_bytes=_tree_bytes(plan.suite.max_bytes, plan.suite.max_files),
        )
        spec = CompartmentSpec(
            "sandbox", name, limits, settings={"environment": plan.bundle.environment}
        )
        self._wall_seconds = bounds.wall_seconds
        self._compartment = launcher.start(spec, {"result": result_end.fileno()})

    def take_listener(self) -> socket.socket:
        """The listening socket of its namespace."""
        self._compartment.control.settimeout(START_SECONDS)
        try:
            return take_listener(self._compartment.control)
        except RunRefused as refusal:
            raise _explain(self._compartment, refusal) from None

    def send_inputs(self, bundle: OpenedArtifact, suite: OpenedArtifact) -> None:
        """Copy bundle and suite in and wait until it is confined."""
        files = [
            InputFile(tree, file.path, file.size, file.fd)
            for tree, opened in (("bundle", bundle), ("suite", suite))
            for file in opened.files
        ]
        try:
            send_inputs(self._compartment.control, files)
        except RunRefused as refusal:
            raise _explain(self._compartment, refusal) from None
        self._compartment.wait_sealed(START_SECONDS)

    def follow(self, post: Callable[[str, int, int], None]) -> None:
        """Pass progress on until it ends; refused when it did not end by itself.

        The eval code writes these frames: what of them is passed on is in progress.py.
        """
        control = self._compartment.control
        control.settimeout(self._wall_seconds + START_SECONDS)
        progress = SteadyProgress(post)
        with paced(progress):
            while True:
                try:
                    message, _ = receive_frame(control, max_bytes=1024)
                except RunRefused as refusal:
                    if refusal.code not in {"frame_peer_gone", "frame_timeout"}:
                        self._compartment.kill()
                    break
                progress.accept(message)
            end = self._compartment.wait(START_SECONDS)
        if end.code != "exited" or end.tripwires:
            # Which call it was stays inside: eval code could write with the names.
            raise RunRefused(f"sandbox_{end.code}", expected="an evaluation within its limits")

    def close(self) -> None:
        """End it and everything in it."""
        close_compartment(self._compartment)


def close_compartment(compartment: Compartment) -> None:
    """Kill what still runs and wait for its end.

    Raises the launcher's refusal (`compartment_timeout`) when the end was not seen: what it
    holds may still be there, so nothing may be called wiped after it.
    """
    try:
        if compartment.exit is None:
            compartment.kill()
            compartment.wait(_STOP_SECONDS)
    finally:
        compartment.close()


def _explain(compartment: Compartment, refusal: RunRefused) -> Refusal:
    """Why the other end went: the launcher knows better than the socket."""
    with contextlib.suppress(Refusal):
        end = compartment.wait(2.0)
        if compartment.refusal is not None:
            return compartment.refusal
        return RunRefused(f"compartment_{end.code}", expected="a running compartment")
    return refusal


def _tree_bytes(max_bytes: int, max_files: int) -> int:
    """Room for the files and a page for each."""
    return max_bytes + 4096 * (max_files + 16) + MIB
