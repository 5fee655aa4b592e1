"""A compartment whose end nobody saw: no run goes on to call its secrets wiped."""

from __future__ import annotations

import contextlib
from typing import cast

import pytest

from enclave.core.errors import IsolationRefused
from enclave.workload.broker.compartments import close_compartment
from enclave.workload.launcher.client import Compartment


class Starved:
    """A compartment on a machine so slow that its end is not seen in time."""

    exit = None
    closed = False

    def kill(self) -> None:
        pass

    def wait(self, timeout: float) -> None:
        raise IsolationRefused("compartment_timeout", expected=f"an end in {timeout} s")

    def close(self) -> None:
        self.closed = True


def test_an_end_that_was_not_seen_is_a_refusal() -> None:
    starved = Starved()
    reached = False
    with pytest.raises(IsolationRefused) as caught, contextlib.ExitStack() as stack:
        stack.callback(close_compartment, cast("Compartment", starved))
        reached = True  # the evaluation itself went well
    assert reached
    assert caught.value.code == "compartment_timeout"
    assert starved.closed
