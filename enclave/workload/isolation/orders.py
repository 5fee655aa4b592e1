"""What the launcher tells stage two, in one frame, before anything untrusted runs."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from enclave.core.fields import Fields
from enclave.workload.isolation.landlock import LandlockRules, PathRule
from enclave.workload.isolation.limits import Limits, parse_limits

ORDERS_DESCRIPTOR: Final = 3
CONTROL_DESCRIPTOR: Final = 4
FIRST_HANDED_DESCRIPTOR: Final = 5
MAX_FILTER_BYTES: Final = 32768


@dataclass(frozen=True, slots=True)
class Orders:
    """How to confine this process and what to call then.

    Descriptors are numbered: 3 launcher, 4 broker, from 5 on those of
    `descriptors` in order, then `granted` directory descriptors for Landlock.
    """

    entry: str
    arguments: tuple[str, ...]
    descriptors: tuple[str, ...]
    granted: int
    inputs: bool
    listener: bool
    limits: Limits
    landlock: LandlockRules
    filter_code: bytes
    settings: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The frame."""
        return {
            "entry": self.entry,
            "arguments": list(self.arguments),
            "descriptors": list(self.descriptors),
            "granted": self.granted,
            "inputs": self.inputs,
            "listener": self.listener,
            "limits": self.limits.as_json(),
            "landlock": self.landlock.as_json(),
            "filter": base64.b64encode(self.filter_code).decode(),
            "settings": dict(self.settings),
        }


def parse_orders(message: Mapping[str, Any]) -> Orders:
    """Read the frame; DocumentRefused when it is not one."""
    fields = Fields(message, "orders")
    orders = Orders(
        entry=fields.text("entry"),
        arguments=fields.identifiers("arguments", 1, 8),
        descriptors=fields.identifiers("descriptors", 0, 8),
        granted=fields.integer("granted", 0, 4),
        inputs=fields.flag("inputs"),
        listener=fields.flag("listener"),
        limits=parse_limits(fields.mapping("limits", 1, 32)),
        landlock=_parse_landlock(fields.object("landlock")),
        filter_code=fields.base64("filter", max_size=MAX_FILTER_BYTES),
        settings=fields.mapping("settings", 0, 256),
    )
    fields.done()
    return orders


def _parse_landlock(fields: Fields) -> LandlockRules:
    rules = LandlockRules(
        paths=tuple(
            PathRule(path, tuple(rights)) for path, rights in fields.array("paths", 0, 256)
        ),
        connect_ports=tuple(fields.array("connect_ports", 0, 16)),
        minimum_abi=fields.integer("minimum_abi", 1, 99),
    )
    fields.done()
    return rules
