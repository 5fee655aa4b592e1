"""Re-emission, sealing and opening of views."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from enclave.core.canonical import print_canonical
from enclave.core.hpke import SEAL_OVERHEAD, generate_private, seal_to
from enclave.core.release import (
    ReleasedView,
    open_view,
    parse_result,
    parse_view,
    release_result,
    seal_release,
    seal_view,
)
from enclave.core.result_policy import parse_result_policy
from tests.core.builders import World, demo_policy_json, expect_refusal, frame_json, print_json
from tests.core.gate import ACCURACY, parse, release
from tests.core.sessions import SESSION, SLOT, release_demo
from tests.core.test_plan import edit


def test_views_hold_only_their_metrics(world: World) -> None:
    document = demo_policy_json()
    document["metrics"][0]["views"] = ["inner"]
    document["metrics"][1]["views"] = ["inner", "summary"]
    policy = parse_result_policy(print_canonical(document))
    plan = world.other_plan(
        result_policy=policy.digest,
        views={"inner": ["evaluator"], "summary": ["model_owner", "evaluator"]},
    )
    result = parse_result(print_json(frame_json()), plan, policy)
    views = release_result(result, plan=plan, policy=policy, session=SESSION, run=1, slot=SLOT)
    assert {v.view: [m.id for m in v.metrics] for v in views} == {
        "inner": ["truthfulqa_mc1_accuracy", "truthfulqa_mc1_baseline"],
        "summary": ["truthfulqa_mc1_baseline", "arithmetic_accuracy", "arithmetic_baseline"],
    }
    sealed = seal_release(views, plan=plan, policy=policy)
    assert [(s.view, s.role) for s in sealed] == [
        ("inner", "evaluator"),
        ("summary", "model_owner"),
        ("summary", "evaluator"),
    ]
    assert len({len(s.sealed) for s in sealed}) == 1
    by_view = {view.view: view for view in views}
    expect_refusal(
        "release_foreign_recipient",
        lambda: seal_view(by_view["inner"], plan.party("model_owner"), plan=plan, policy=policy),
    )
    expect_refusal(
        "release_foreign_recipient",
        lambda: open_view(
            sealed[0].sealed,
            world.owner.recipient_key,
            plan=plan,
            policy=policy,
            session=SESSION,
            run=1,
            view="inner",
            role="model_owner",
        ),
    )


def test_every_view_has_one_size(world: World) -> None:
    sizes = set()
    for value in ("0", "0.01", "1"):
        frame = edit(frame_json(), (*ACCURACY, "value"), value)
        view = release(world, parse(world, frame))
        sizes.add(len(view.to_bytes(world.policy.release_bytes)))
    assert sizes == {4096}
    assert {len(s.sealed) for s in release_demo(world)} == {4096 + SEAL_OVERHEAD}


def test_parse_print_compare(world: World) -> None:
    view = release(world)
    data = view.to_bytes(4096)
    assert parse_view(data, "summary", world.policy) == view
    assert parse_view(data, "summary", world.policy).to_bytes(4096) == data


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"run": 0}, "release_run_past_max"),
        ({"run": 4}, "release_run_past_max"),
        ({"slot": "2026-10-01T12:00:01Z"}, "release_slot"),
        ({"slot": "noon"}, "release_slot"),
        ({"session": "ab"}, "document_field_value"),
    ],
)
def test_releases_that_are_not_made(world: World, change: dict[str, Any], code: str) -> None:
    expect_refusal(code, lambda: release(world, **change))


def test_only_a_parsed_result_of_this_plan_is_released(world: World) -> None:
    result = parse(world, frame_json())
    expect_refusal("release_not_parsed", lambda: release(world, frame_json()))  # type: ignore[arg-type]
    other = replace(result, plan="00" * 32)
    expect_refusal("release_other_plan", lambda: release(world, other))
    over = parse_result_policy(print_canonical({**demo_policy_json(), "max_bits": 1}))
    plan = world.other_plan(result_policy=over.digest)
    expect_refusal("release_budget_exceeded", lambda: release(world, plan=plan, policy=over))


def test_a_view_too_small_for_its_metrics(world: World) -> None:
    expect_refusal("release_view_size", lambda: release(world).to_bytes(100))


def open_(world: World, sealed: bytes, **changes: Any) -> ReleasedView:
    arguments: dict[str, Any] = {
        "plan": world.plan,
        "policy": world.policy,
        "session": SESSION,
        "run": 1,
        "view": "summary",
        "role": "model_owner",
    }
    key = changes.pop("key", world.owner.recipient_key)
    return open_view(sealed, key, **{**arguments, **changes})


def test_each_recipient_opens_its_own(world: World) -> None:
    owner, evaluator = release_demo(world)
    assert open_(world, owner.sealed) == open_(
        world, evaluator.sealed, key=world.evaluator.recipient_key, role="evaluator"
    )
    expect_refusal("release_sealed_invalid", lambda: open_(world, evaluator.sealed))
    for change in (
        {"key": generate_private()},
        {"session": "00" * 16},
        {"run": 2},
        {"plan": world.other_plan(title="Other")},
        {"role": "evaluator"},
    ):
        expect_refusal("release_sealed_invalid", lambda c=change: open_(world, owner.sealed, **c))
    expect_refusal("release_foreign_recipient", lambda: open_(world, owner.sealed, role="auditor"))
    expect_refusal("release_foreign_recipient", lambda: open_(world, owner.sealed, view="other"))
    damaged = owner.sealed[:-1] + bytes([owner.sealed[-1] ^ 1])
    expect_refusal("release_sealed_invalid", lambda: open_(world, damaged))


def test_a_view_of_another_run_inside_the_seal(world: World) -> None:
    """A gate that contradicts its own seal is not believed."""
    view = replace(release(world), run=2)
    sealed = seal_view(view, world.owner.party, plan=world.plan, policy=world.policy).sealed
    open_(world, sealed, run=2)
    relabelled = seal_to(
        world.owner.party.recipient_key,
        _info(world, run=1),
        view.to_bytes(world.policy.release_bytes),
    )
    expect_refusal("release_view_mismatch", lambda: open_(world, relabelled))


def _info(world: World, run: int) -> bytes:
    def field(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    return (
        b"doubleblind/release/v1\x00"
        + field(bytes.fromhex(world.plan.digest))
        + field(bytes.fromhex(SESSION))
        + field(run.to_bytes(4, "big"))
        + field(b"summary")
        + field(b"model_owner")
    )


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("metrics", 0, "value"), "0.31", "release_view_value"),
        (("metrics", 0, "steps"), 101, "document_field_value"),
        (("metrics", 0, "id"), "arithmetic_accuracy", "document_field_value"),
        (("metrics", 0, "note"), "x", "document_field_unknown"),
        (("metrics",), [], "document_field_value"),
        (("slot",), "2026-10-01T12:00:01Z", "release_slot"),
        (("view",), "other", "document_field_value"),
        (("completed",), 120, "document_field_unknown"),
        (("plan",), ..., "document_field_missing"),
    ],
)
def test_views_refused(world: World, path: tuple[str | int, ...], value: Any, code: str) -> None:
    document = json.loads(release(world).to_bytes(4096))
    document = edit(document, path, value)
    short = print_canonical({**document, "pad": ""})
    data = print_canonical({**document, "pad": "." * (4096 - len(short))})
    expect_refusal(code, lambda: parse_view(data, "summary", world.policy))


def test_the_pad_carries_nothing(world: World) -> None:
    data = release(world).to_bytes(4096)
    message = data.replace(b"....", b"secr", 1)
    expect_refusal("release_view_size", lambda: parse_view(message, "summary", world.policy))
    expect_refusal("release_view_size", lambda: parse_view(data[:-1], "summary", world.policy))
