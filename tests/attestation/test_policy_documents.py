"""Policies and reference values are closed: parser and JSON Schema agree on what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.appraise import (
    parse_authored_policy,
    parse_authored_reference_values,
    parse_policy,
    parse_reference_values,
)
from attestation.errors import MalformedPolicy
from tests.attestation.forging import POLICIES, policy_json

NAMES = ["deny_all", "production_snp_h100", "unsafe_simulated"]
SCHEMA = json.loads((POLICIES / "schema" / "attestation-policy-v1.schema.json").read_bytes())
VALUES_SCHEMA = json.loads((POLICIES / "schema" / "reference-values-v1.schema.json").read_bytes())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
VALUES_VALIDATOR = jsonschema.Draft202012Validator(VALUES_SCHEMA)


def nodes(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every object, list and scalar of a document with its path."""
    yield path, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from nodes(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from nodes(child, (*path, index))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def parse(value: object) -> None:
    parse_policy(rfc8785.dumps(value))  # type: ignore[arg-type]


def test_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(VALUES_SCHEMA)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_policies_parse_and_validate(name: str) -> None:
    data = (POLICIES / f"{name}.json").read_bytes()
    VALIDATOR.validate(json.loads(data))
    policy = parse_authored_policy(data)
    assert policy.name == name.replace("_", "-")
    assert parse_policy(policy.to_bytes()) == policy
    assert parse_policy(policy.to_bytes()).digest == policy.digest
    assert len(policy.digest) == 64


def test_every_shipped_attestation_policy_is_in_this_test() -> None:
    shipped = [
        path.stem
        for path in POLICIES.glob("*.json")
        if json.loads(path.read_bytes())["type"].endswith("attestation-policy/v1")
    ]
    assert sorted(shipped) == NAMES


def test_kinds_of_the_shipped_policies() -> None:
    read = {name: parse_authored_policy((POLICIES / f"{name}.json").read_bytes()) for name in NAMES}
    assert read["production_snp_h100"].kinds == ("nvidia-gpu", "sev-snp")
    assert not read["production_snp_h100"].unsafe_simulated
    assert read["unsafe_simulated"].kinds == ("simulated",)
    assert read["unsafe_simulated"].unsafe_simulated
    assert read["deny_all"].denies_all
    assert read["deny_all"].kinds == ()


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_unknown_key_in_every_object(name: str) -> None:
    original = policy_json(name)
    tried = 0
    for path, value in nodes(original):
        if not isinstance(value, dict):
            continue
        changed = copy.deepcopy(original)
        at(changed, path)["unheard_of"] = "unconstrained"
        with pytest.raises(MalformedPolicy) as caught:
            parse(changed)
        assert caught.value.exit_code == 7
        assert not VALIDATOR.is_valid(changed)
        for key in value:
            changed = copy.deepcopy(original)
            del at(changed, path)[key]
            if path == ("kinds",) and name == "production_snp_h100":
                continue  # one kind fewer is another policy, and a well-formed one
            with pytest.raises(MalformedPolicy):
                parse(changed)
            assert not VALIDATOR.is_valid(changed), (path, key)
            tried += 1
    assert tried >= {"deny_all": 6, "production_snp_h100": 80, "unsafe_simulated": 11}[name]


WRONG = (None, True, -1, 2**40, "", "On", "anything", [], [-1], ["x", "x"], {}, [[]], {"a": 1})


@pytest.mark.parametrize("name", NAMES)
def test_wrong_value_in_every_field(name: str) -> None:
    """Parser and schema refuse the same wrong values; neither raises anything foreign."""
    original = policy_json(name)
    for path, value in nodes(original):
        if not path:
            continue
        for wrong in WRONG:
            changed = copy.deepcopy(original)
            at(changed, path[:-1])[path[-1]] = wrong
            try:
                parse(changed)
            except MalformedPolicy as error:
                assert error.findings
                assert not VALIDATOR.is_valid(changed), (path, wrong)
            else:
                assert VALIDATOR.is_valid(changed), (path, wrong)
                assert type(wrong) is type(value) or value == "unconstrained" or wrong is True


def test_null_never_means_unconstrained() -> None:
    for path, value in nodes(policy_json("production_snp_h100")):
        if value == "unconstrained":
            changed = policy_json("production_snp_h100")
            at(changed, path[:-1])[path[-1]] = None
            with pytest.raises(MalformedPolicy):
                parse(changed)


def changed_policy(name: str, *path: Any, value: object) -> dict[str, Any]:
    changed = policy_json(name)
    at(changed, path[:-1])[path[-1]] = value
    return changed


SNP = ("kinds", "sev-snp")
GPU = ("kinds", "nvidia-gpu")
PRODUCTION = "production_snp_h100"


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (changed_policy("unsafe_simulated", "kinds", value={}), "policy_empty"),
        (changed_policy(PRODUCTION, "kinds", value={}), "policy_empty"),
        (changed_policy("deny_all", "decision", value="appraise"), "policy_empty"),
        (
            changed_policy("unsafe_simulated", "decision", value="deny_all"),
            "policy_deny_all_with_kinds",
        ),
        (
            changed_policy("unsafe_simulated", "unsafe_simulated", value=False),
            "policy_simulated_contradiction",
        ),
        (
            changed_policy(PRODUCTION, "unsafe_simulated", value=True),
            "policy_simulated_contradiction",
        ),
        (changed_policy(PRODUCTION, "kinds", "tdx", value={}), "policy_kind_unknown"),
        (changed_policy(PRODUCTION, "kinds", "any", value={}), "policy_kind_unknown"),
        (changed_policy(PRODUCTION, "decision", value="allow"), "policy_field_value"),
        (changed_policy(PRODUCTION, "name", value="Production"), "policy_field_value"),
        (changed_policy(PRODUCTION, "description", value="a\nb"), "policy_field_value"),
        (changed_policy(PRODUCTION, "unsafe_simulated", value=0), "policy_field_type"),
        (changed_policy(PRODUCTION, *SNP, "vmpl", value="unconstrained"), "policy_field_type"),
        (changed_policy(PRODUCTION, *SNP, "vmpl", value=[1, 0]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "vmpl", value=[0, 0]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "vmpl", value=[4]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "vmpl", value=[True]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "versions", value=[1]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "products", value=["naples"]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "products", value=["milan"]), "policy_field_missing"),
        (
            changed_policy(PRODUCTION, *SNP, "products", value=["genoa", "milan"]),
            "policy_field_missing",
        ),
        (changed_policy(PRODUCTION, *SNP, "chip_ids", value=["00" * 63]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "chip_ids", value=["AA" * 64]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "chip_ids", value=[]), "policy_field_value"),
        (changed_policy(PRODUCTION, *SNP, "measurement", value="any"), "policy_field_value"),
        (changed_policy(PRODUCTION, *GPU, "count", value=0), "policy_field_value"),
        (changed_policy(PRODUCTION, *GPU, "count", value="unconstrained"), "policy_field_type"),
        (
            changed_policy(PRODUCTION, *GPU, "minimum_driver_version", value="550"),
            "policy_field_value",
        ),
    ],
)
def test_refused_policies(document: dict[str, Any], code: str) -> None:
    with pytest.raises(MalformedPolicy) as caught:
        parse(document)
    assert caught.value.code == code
    assert caught.value.findings[0].check == "policy.format"


def test_floors_name_every_product_and_no_other() -> None:
    changed = policy_json(PRODUCTION)
    rules = changed["kinds"]["sev-snp"]
    tcb = {"bootloader": 1, "tee": 0, "snp": 24, "microcode": 0}
    rules["products"] = ["genoa", "turin"]
    for name in rules["tcb_floors"]:
        rules["tcb_floors"][name] = {"genoa": tcb, "turin": tcb | {"fmc": 1}}
    parse(changed)
    VALIDATOR.validate(changed)
    rules["tcb_floors"]["launch"]["milan"] = tcb
    with pytest.raises(MalformedPolicy, match="policy_field_unknown"):
        parse(changed)
    rules["tcb_floors"]["launch"] = {"genoa": tcb, "turin": tcb}
    with pytest.raises(MalformedPolicy, match="policy_field_missing"):
        parse(changed)
    rules["tcb_floors"]["launch"] = "unconstrained"
    parse(changed)


def test_plans_name_one_spelling_and_authors_are_free_in_whitespace_only() -> None:
    data = (POLICIES / "unsafe_simulated.json").read_bytes()
    with pytest.raises(MalformedPolicy, match="policy_not_canonical"):
        parse_policy(data)
    canonical = parse_authored_policy(data).to_bytes()
    reordered = json.dumps(dict(reversed(json.loads(data).items())), indent=7).encode()
    assert parse_authored_policy(reordered).to_bytes() == canonical
    for bad in (
        data + b"x",
        data.replace(b'"name"', b'"name":"x","name"', 1),
        b"\xef\xbb\xbf" + data,
    ):
        with pytest.raises(MalformedPolicy):
            parse_authored_policy(bad)


@pytest.mark.parametrize("name", NAMES)
def test_truncation_and_flips_raise_only_malformed(name: str) -> None:
    data = parse_authored_policy((POLICIES / f"{name}.json").read_bytes()).to_bytes()
    digest = parse_policy(data).digest
    for index in range(len(data)):
        with pytest.raises(MalformedPolicy):
            parse_policy(data[:index])
        flipped = bytearray(data)
        flipped[index] ^= 1
        try:
            changed = parse_policy(bytes(flipped))
        except MalformedPolicy:
            continue
        assert changed.digest != digest


# Reference values.

MEASURED = {"measurements": [{"name": "tree", "measurement": "07" * 48}]}
VALUES: dict[str, Any] = {
    "type": "https://w3id.org/double-blind/reference-values/v1",
    "name": "test",
    "values": {"simulated": MEASURED, "sev-snp": MEASURED},
}


def test_reference_values() -> None:
    data = rfc8785.dumps(VALUES)
    read = parse_reference_values(data)
    VALUES_VALIDATOR.validate(VALUES)
    assert read.to_bytes() == data
    assert read.measurements["sev-snp"] == {"07" * 48: "tree"}
    assert parse_authored_reference_values(json.dumps(VALUES, indent=3).encode()) == read
    with pytest.raises(MalformedPolicy, match="reference_values_not_canonical"):
        parse_reference_values(json.dumps(VALUES, indent=3).encode())


def test_reference_values_are_closed() -> None:
    for path, value in nodes(VALUES):
        if not isinstance(value, dict):
            continue
        changed = copy.deepcopy(VALUES)
        at(changed, path)["unheard_of"] = 1
        with pytest.raises(MalformedPolicy):
            parse_reference_values(rfc8785.dumps(changed))
        assert not VALUES_VALIDATOR.is_valid(changed)
        for key in value:
            if path == ("values",):
                continue
            changed = copy.deepcopy(VALUES)
            del at(changed, path)[key]
            with pytest.raises(MalformedPolicy):
                parse_reference_values(rfc8785.dumps(changed))
            assert not VALUES_VALIDATOR.is_valid(changed)


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({}, "reference_values_empty"),
        ({"simulated": {"measurements": []}}, "reference_values_field_value"),
        ({"nvidia-gpu": MEASURED}, "reference_values_kind_unknown"),
        (
            {"simulated": {"measurements": MEASURED["measurements"] * 2}},
            "reference_values_duplicate",
        ),
        (
            {"simulated": {"measurements": [{"name": "x", "measurement": "07" * 32}]}},
            "reference_values_field_value",
        ),
    ],
)
def test_refused_reference_values(values: dict[str, Any], code: str) -> None:
    with pytest.raises(MalformedPolicy) as caught:
        parse_reference_values(rfc8785.dumps(VALUES | {"values": values}))
    assert caught.value.code == code


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_raise_only_malformed(data: bytes) -> None:
    for parser in (parse_policy, parse_authored_policy, parse_reference_values):
        with pytest.raises(MalformedPolicy):
            parser(data)
