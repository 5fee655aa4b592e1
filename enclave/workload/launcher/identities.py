"""Which user each part of the workload runs as."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from enclave.core.errors import IsolationRefused
from enclave.workload.isolation.profile import PROFILES
from enclave.workload.launcher.spawn import Identity

DEFAULT_UIDS: Final = {"broker": 64010, "model_host": 64011, "gate": 64012, "sandbox": 64013}
"""Numbers without a passwd entry; nothing else on the machine may run as them."""


class Identities:
    """One user a part where the launcher is root; one for all where it is not."""

    def __init__(self, uids: Mapping[str, int] | None = None) -> None:
        self.separate = os.geteuid() == 0
        table = dict(uids) if uids is not None else dict(DEFAULT_UIDS)
        if set(table) != {"broker", *PROFILES}:
            raise IsolationRefused("uids", expected="one uid for broker and each kind")
        if len(set(table.values())) != len(table) or min(table.values()) < 1:
            raise IsolationRefused("uids", expected="distinct unprivileged uids")
        self._table = table

    def of(self, part: str) -> Identity:
        """The identity of the broker or of a kind of compartment."""
        if not self.separate:
            return Identity(None, None)
        uid = self._table[part]
        return Identity(uid, uid)

    def as_json(self) -> dict[str, int]:
        """For the profile digest: what each part really runs as."""
        if self.separate:
            return dict(self._table)
        return dict.fromkeys(self._table, os.geteuid())
