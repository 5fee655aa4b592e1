"""What the gate's tests do again and again."""

from __future__ import annotations

from typing import Any

from enclave.core.release import (
    ParsedResult,
    ReleasedView,
    parse_result,
    release_result,
)
from tests.core.builders import World, frame_json, print_json
from tests.core.sessions import SESSION, SLOT

ACCURACY = ("metrics", "truthfulqa_mc1_accuracy")


def parse(world: World, frame: bytes | dict[str, Any]) -> ParsedResult:
    data = frame if isinstance(frame, bytes) else print_json(frame)
    return parse_result(data, world.plan, world.policy)


def release(world: World, result: ParsedResult | None = None, **changes: Any) -> ReleasedView:
    arguments = {
        "plan": world.plan,
        "policy": world.policy,
        "session": SESSION,
        "run": 1,
        "slot": SLOT,
    }
    (view,) = release_result(result or parse(world, frame_json()), **{**arguments, **changes})
    return view
