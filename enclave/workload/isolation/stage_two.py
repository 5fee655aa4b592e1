"""Stage two: the first Python of a compartment. It confines itself, then calls the entry.

Order (SANDBOX recipe): orders, listener, inputs, close_range, limits,
Landlock, seccomp, acknowledgement by the launcher, entry.  Nothing that a
party supplied is read as code before the last step.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
from typing import Any

from enclave.core.errors import IsolationRefused, Refusal
from enclave.workload.frames import receive_frame, send_frame
from enclave.workload.isolation.inputs import receive_inputs
from enclave.workload.isolation.kernel import (
    PR_SET_PDEATHSIG,
    close_descriptors_from,
    harden_process,
    offer_to_the_kernel,
    prctl,
)
from enclave.workload.isolation.landlock import restrict_self
from enclave.workload.isolation.limits import apply_limits
from enclave.workload.isolation.network import hand_out_listener
from enclave.workload.isolation.orders import (
    CONTROL_DESCRIPTOR,
    FIRST_HANDED_DESCRIPTOR,
    ORDERS_DESCRIPTOR,
    Orders,
    parse_orders,
)
from enclave.workload.isolation.profile import MODEL_PORT
from enclave.workload.isolation.seccomp.load import load_filter

EXIT_REFUSED = 70


def main() -> int:
    """Run one compartment; the exit status is the entry's."""
    launcher = socket.socket(fileno=ORDERS_DESCRIPTOR)
    control = socket.socket(fileno=CONTROL_DESCRIPTOR)
    try:
        orders, handed = _confine(launcher, control)
    except Refusal as refusal:
        _report(launcher, refusal)
        return EXIT_REFUSED
    except (OSError, ValueError) as error:
        got = f"{type(error).__name__} {getattr(error, 'errno', '')}".strip()
        _report(launcher, IsolationRefused("confinement_failed", got=got))
        return EXIT_REFUSED
    launcher.close()
    offered: dict[str, Any] = {"control": control, "settings": dict(orders.settings), **handed}
    module, _, function = orders.entry.partition(":")
    status: int = getattr(importlib.import_module(module), function)(
        **{name: offered[name] for name in orders.arguments}
    )
    return status


def _confine(
    launcher: socket.socket, control: socket.socket
) -> tuple[Orders, dict[str, socket.socket]]:
    # bwrap set it already; setting it again and hearing from the launcher afterwards
    # closes the race with a parent that died in between.
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    message, _ = receive_frame(launcher)
    orders = parse_orders(message)
    if orders.inputs:
        offer_to_the_kernel()
    if orders.listener:
        hand_out_listener(control, MODEL_PORT)
    if orders.inputs:
        receive_inputs(control)
    handed = {
        name: socket.socket(fileno=FIRST_HANDED_DESCRIPTOR + index)
        for index, name in enumerate(orders.descriptors)
    }
    first_granted = FIRST_HANDED_DESCRIPTOR + len(handed)
    granted = range(first_granted, first_granted + orders.granted)
    close_descriptors_from(granted.stop)
    harden_process()
    apply_limits(orders.limits)
    abi = restrict_self(orders.landlock, granted)
    for descriptor in granted:
        os.close(descriptor)
    listener = load_filter(orders.filter_code)
    send_frame(launcher, {"event": "sealed", "abi": abi}, [listener])
    os.close(listener)
    message, _ = receive_frame(launcher)
    if message != {"event": "go"}:
        raise IsolationRefused("launcher_gone", expected="go")
    return orders, handed


def _report(launcher: socket.socket, refusal: Refusal) -> None:
    try:
        send_frame(launcher, {"event": "refused", "refusal": refusal.as_json()})
    except Refusal:
        return
