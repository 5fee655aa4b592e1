"""Writes the vectors of released views; nothing in them is random: `python -m tests.core.view_vectors`."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from enclave.core.canonical import print_canonical
from enclave.core.release_view import ReleasedMetric, ReleasedView
from tests.core.builders import demo_policy

TARGET = Path(__file__).parents[1] / "vectors" / "core" / "views.json"
STEPS = (27, 38, 12, 4)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def repadded(document: dict[str, Any], size: int) -> bytes:
    """Canonical bytes of exactly `size`, whatever else is wrong with the document."""
    empty = print_canonical({**document, "pad": ""})
    return print_canonical({**document, "pad": document["pad"][:1] * (size - len(empty))})


def view_cases() -> dict[str, Any]:
    policy = demo_policy()
    metrics = policy.metrics_of("summary")
    view = ReleasedView(
        plan="1f" * 32,
        session="2e" * 16,
        run=1,
        view="summary",
        slot="2026-12-01T15:00:00Z",
        metrics=tuple(
            ReleasedMetric(m.id, m.print_value(s), s) for m, s in zip(metrics, STEPS, strict=True)
        ),
    )
    good = view.to_bytes(policy.release_bytes)
    size = policy.release_bytes

    def changed(**fields: Any) -> bytes:
        return repadded({**json.loads(good), **fields}, size)

    listed = json.loads(good)["metrics"]
    wrong_value = [{**listed[0], "value": "0.28"}, *listed[1:]]
    wrong_id = [{**listed[0], "id": "other"}, *listed[1:]]
    past_range = [{**listed[0], "steps": metrics[0].size}, *listed[1:]]
    table: list[tuple[str, bytes, str | None]] = [
        ("good", good, None),
        ("last run", changed(run=1000), None),
        ("one byte short", good[:-1], "release_view_size"),
        ("one byte more", good + b" ", "release_view_size"),
        ("pad of another letter", changed(pad="x"), "release_view_size"),
        ("value not at its steps", changed(metrics=wrong_value), "release_view_value"),
        ("steps past the range", changed(metrics=past_range), "document_field_value"),
        ("another metric", changed(metrics=wrong_id), "document_field_value"),
        ("a metric less", changed(metrics=listed[1:]), "document_field_value"),
        ("metrics in another order", changed(metrics=listed[::-1]), "document_field_value"),
        ("another view", changed(view="details"), "document_field_value"),
        ("not at a slot", changed(slot="2026-12-01T15:00:01Z"), "release_slot"),
        ("no slot", changed(slot="2026-12-01"), "release_slot"),
        ("an unknown key", changed(note=""), "document_field_unknown"),
        ("another type", changed(type="x"), "document_field_value"),
    ]
    return {
        "page": "docs/spec/release.md",
        "policy": b64(policy.to_bytes()),
        "view": "summary",
        "cases": [
            {
                "name": name,
                "bytes": b64(data),
                **({"steps": list(STEPS)} if code is None else {"error": code}),
            }
            for name, data, code in table
        ],
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(view_cases(), indent=1) + "\n")
