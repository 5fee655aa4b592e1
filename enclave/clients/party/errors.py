"""Refusals that arise on a party's own machine and never cross the wire."""

from __future__ import annotations

from enclave.core.errors import Refusal


class StateRefused(Refusal):
    """The party's state directory is missing, unsafe, incomplete or in use."""

    stage = "state"


class ClientRefused(Refusal):
    """The party's own client refuses to go on: a pin differs, a choice is missing."""

    stage = "client"
