"""The JSON Schemas for authors say the same as the parsers, as far as a schema can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal
from enclave.core.plan import parse_plan
from enclave.core.result_policy import parse_result_policy
from tests.core.builders import World, demo_policy_json, make_party
from tests.core.test_plan import at, edit, objects
from tests.core.test_result_policy import COUNT, ENUM, RATIO, policy_json

SCHEMAS = Path(__file__).parents[2] / "policies" / "schema"


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


PLAN = validator("plan-v1")
POLICY = validator("result-policy-v1")


def rich_plan(world: World) -> dict[str, Any]:
    demand = {"kind": "sev-snp", "policy": "0a" * 32, "reference_values": "0b" * 32}
    return world.edited(
        party_evidence={"model_owner": demand, "evaluator": None},
        publication={"may_publish": ["evaluator"], "not_before": "2027-01-01T00:00:00Z"},
    )


def rich_policy() -> dict[str, Any]:
    return policy_json(RATIO, COUNT, ENUM, baselines=[{"metric": "accuracy", "baseline": "solved"}])


def test_good_examples(world: World) -> None:
    for document in (world.document, rich_plan(world)):
        PLAN.validate(document)
        parse_plan(print_canonical(document))
    for document in (demo_policy_json(), rich_policy()):
        POLICY.validate(document)
        parse_result_policy(print_canonical(document))


@pytest.mark.parametrize("kind", ["plan", "policy"])
def test_unknown_and_missing_keys_are_refused_by_both(world: World, kind: str) -> None:
    document = rich_plan(world) if kind == "plan" else rich_policy()
    schema, parse = (PLAN, parse_plan) if kind == "plan" else (POLICY, parse_result_policy)
    count = 0
    for path in objects(document):
        variants = [edit(document, (*path, "zz"), 1)]
        if path != ("views",):
            variants += [edit(document, (*path, key), ...) for key in at(document, path)]
        for variant in variants:
            with pytest.raises(ValidationError):
                schema.validate(variant)
            with pytest.raises(Refusal):
                parse(print_canonical(variant))
            count += 1
    assert count >= 25


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("isolation", "min_tier"), "T0"),
        (("engine", "dtype"), "float16"),
        (("engine", "temperature"), "0.0"),
        (("engine", "temperature"), 0.5),
        (("plan_id",), "0F" * 16),
        (("max_runs",), 0),
        (("max_runs",), "3"),
        (("not_after",), "2026-12-31"),
        (("views",), {}),
        (("views", "summary"), ["host"]),
        (("views", "summary"), ["evaluator", "evaluator"]),
        (("publication", "not_before"), "never"),
        (("limits", "result_bytes"), 2**20),
        (("bundle", "environment"), "Python 3"),
        (("parties",), []),
    ],
)
def test_plans_refused_by_both(world: World, path: tuple[str, ...], value: Any) -> None:
    document = edit(world.document, path, value)
    with pytest.raises(ValidationError):
        PLAN.validate(document)
    if not isinstance(value, float):
        with pytest.raises(Refusal):
            parse_plan(print_canonical(document))


def test_parties_are_counted_by_both(world: World) -> None:
    parties = world.document["parties"]
    twin = make_party("evaluator", "Twin").party.fields()
    for wrong in (parties[1:], parties[:1], [*parties, twin]):
        with pytest.raises(ValidationError):
            PLAN.validate(world.edited(parties=wrong))
        with pytest.raises(Refusal):
            parse_plan(print_canonical(world.edited(parties=wrong)))


@pytest.mark.parametrize(
    "metric",
    [
        {**RATIO, "step": "0.010"},
        {**RATIO, "kind": "text"},
        {**RATIO, "values": ["0", "1"]},
        {**RATIO, "max_digits": 13},
        {**COUNT, "max_digits": 1},
        {**ENUM, "values": ["1"]},
        {**ENUM, "values": ["1", "1"]},
        {**ENUM, "low": "0"},
        {**RATIO, "views": []},
        {**RATIO, "id": "Accuracy"},
    ],
)
def test_metrics_refused_by_both(metric: dict[str, Any]) -> None:
    document = policy_json(metric)
    with pytest.raises(ValidationError):
        POLICY.validate(document)
    with pytest.raises(Refusal):
        parse_result_policy(print_canonical(document))
