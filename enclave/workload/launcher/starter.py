"""Turns a request of the broker into a started compartment, from the closed table alone."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import enclave.workload
from enclave.core.errors import IsolationRefused
from enclave.workload.frames import send_frame
from enclave.workload.isolation.kernel import MACHINE
from enclave.workload.isolation.landlock import demand_landlock
from enclave.workload.isolation.limits import Limits
from enclave.workload.isolation.orders import Orders
from enclave.workload.isolation.profile import (
    PROFILES,
    T1_LANDLOCK_ABI,
    T2_LANDLOCK_ABI,
    Profile,
    bubblewrap_arguments,
    choose_profile,
    environment,
    landlock_rules,
)
from enclave.workload.isolation.runtime import Runtime
from enclave.workload.isolation.seccomp.rules import compile_filter, parse_filter
from enclave.workload.isolation.swap import swap_in_use
from enclave.workload.launcher.compartment import Compartment
from enclave.workload.launcher.identities import Identities
from enclave.workload.launcher.protocol import Start
from enclave.workload.launcher.root import memory_path
from enclave.workload.launcher.spawn import spawn


class Starter:
    """Holds what is fixed for the launcher's life: runtime, bwrap, filters, identities."""

    def __init__(
        self,
        runtime: Runtime,
        identities: Identities,
        *,
        bwrap: str,
        etc: str,
        insecure_stderr: int | None = None,
    ) -> None:
        self.identities = identities
        self._runtime = runtime
        self._bwrap = bwrap
        self._etc = etc
        self._insecure_stderr = insecure_stderr
        self._abi = demand_landlock(T1_LANDLOCK_ABI)
        self._missing = missing_for_t2(identities, self._abi)
        self._minimum_abi = T1_LANDLOCK_ABI if self._missing else T2_LANDLOCK_ABI
        self._filters = {
            name: compile_filter(parse_filter(name), MACHINE)
            for name in sorted({profile.filter for profile in PROFILES.values()})
        }

    def start(
        self, number: int, request: Start, descriptors: Sequence[int]
    ) -> tuple[Compartment, int]:
        """Start a compartment; returns it and the broker's end of its control socket."""
        profile = choose_profile(request.kind, request.probe)
        if request.descriptors != profile.descriptors or len(descriptors) != len(
            profile.descriptors
        ):
            raise IsolationRefused(
                "descriptors_unexpected", expected=", ".join(profile.descriptors) or "none"
            )
        granted = []
        if request.memory:
            if not profile.own_proc:
                raise IsolationRefused("memory_not_granted", expected="a model host")
            flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
            granted = [os.open(memory_path(request.memory), flags)]
        try:
            return self._spawn(number, profile, request, [*descriptors, *granted])
        finally:
            for descriptor in granted:
                os.close(descriptor)

    def _spawn(
        self, number: int, profile: Profile, request: Start, handed: Sequence[int]
    ) -> tuple[Compartment, int]:
        orders_here, orders_there = socket.socketpair()
        control_here, control_there = socket.socketpair()
        info_read, info_write = os.pipe2(os.O_CLOEXEC)
        inherited = [orders_there.fileno(), control_there.fileno(), *handed, info_write]
        arguments = bubblewrap_arguments(
            profile,
            self._runtime,
            request.limits,
            bwrap=self._bwrap,
            etc=self._etc,
            threads=request.threads,
        )
        arguments[1:1] = ["--info-fd", str(2 + len(inherited))]
        orders = Orders(
            entry=profile.entry,
            arguments=profile.arguments,
            descriptors=profile.descriptors,
            granted=len(handed) - len(profile.descriptors),
            inputs=profile.inputs,
            listener=profile.listener,
            limits=request.limits,
            landlock=landlock_rules(profile, self._runtime, self._minimum_abi),
            filter_code=self._filters[profile.filter],
            settings=request.settings,
        )
        part = request.probe or request.kind
        try:
            send_frame(orders_here, orders.as_json())
            outer = spawn(
                arguments,
                identity=self.identities.of(part),
                environment={},
                descriptors=inherited,
                standard=self._standard(),
            )
        except BaseException:
            for end in (orders_here, control_here):
                end.close()
            os.close(info_read)
            raise
        finally:
            for end in (orders_there, control_there):
                end.close()
            os.close(info_write)
        compartment = Compartment(number, profile, request.limits, outer, info_read, orders_here)
        return compartment, control_here.detach()

    def _standard(self) -> Sequence[int]:
        """Standard descriptors of compartments: /dev/null, but for the developer's stderr."""
        if self._insecure_stderr is None:
            return ()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.set_inheritable(null, False)
        return (null, null, self._insecure_stderr)

    def describe(self) -> dict[str, Any]:
        """The facts for the profile digest that only the launcher knows."""
        limits = Limits()
        return {
            "tier": "T1" if self._missing else "T2",
            "missing": list(self._missing),
            "swap": swap_in_use(),
            "landlock_abi": self._abi,
            "machine": MACHINE,
            "kernel": os.uname().release,
            "uids": self.identities.as_json(),
            "bwrap": _digest(Path(self._bwrap).read_bytes()),
            "launcher": _source_digest(),
            "python": _digest(Path(self._runtime.python).read_bytes()),
            "trees": list(self._runtime.trees),
            "environment": environment(1),
            "filters": {name: _digest(code) for name, code in self._filters.items()},
            "landlock": {
                kind: landlock_rules(profile, self._runtime, self._minimum_abi).as_json()
                for kind, profile in PROFILES.items()
            },
            "arguments": {
                kind: bubblewrap_arguments(
                    profile, self._runtime, limits, bwrap=self._bwrap, etc=self._etc, threads=1
                )
                for kind, profile in PROFILES.items()
            },
            "stderr_shown": self._insecure_stderr is not None,
        }


def missing_for_t2(identities: Identities, abi: int) -> tuple[str, ...]:
    """The layers of tier T2 that this machine lacks, by name; the self-test proves the others."""
    missing = []
    if not identities.separate:
        missing.append("own_uid")
    if abi < T2_LANDLOCK_ABI:
        missing.append(f"landlock_abi_{T2_LANDLOCK_ABI}")
    return tuple(missing)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _source_digest() -> str:
    """SHA-256 over the source of the workload room: what runs before and around a compartment."""
    root = Path(next(iter(enclave.workload.__path__)))
    total = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in {".py", ".txt"}:
            content = _digest(path.read_bytes())
            total.update(f"{path.relative_to(root)} {content}\n".encode())
    return total.hexdigest()
