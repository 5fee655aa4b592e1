from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.errors import Refusal
from enclave.core.plan import parse_plan
from tests.core.builders import (
    NOW,
    World,
    b64,
    demo_policy,
    expect_refusal,
    make_certificate,
    make_party,
    plan_json,
)

Path = tuple[str | int, ...]


def edit(document: Any, path: Path, value: Any) -> Any:
    """A copy of `document` with one value set (or removed, when value is `...`)."""
    copied = copy.deepcopy(document)
    target = copied
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return copied


def objects(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of every object in a document."""
    if isinstance(value, dict):
        yield path
        for key, entry in value.items():
            yield from objects(entry, (*path, key))
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from objects(entry, (*path, index))


def at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def parse(document: dict[str, Any]) -> object:
    return parse_plan(print_canonical(document))


def test_parse_print_compare(world: World) -> None:
    data = print_canonical(world.document)
    plan = parse_plan(data)
    assert plan.to_bytes() == data
    assert plan.to_json() == world.document
    assert plan.digest == digest_bytes(data)
    assert {plan: 1}[parse_plan(data)] == 1


EDITS = st.fixed_dictionaries(
    {
        # Always edited: the views that are drawn may leave the publisher out.
        "publication": st.fixed_dictionaries(
            {
                "may_publish": st.just([]),
                "not_before": st.sampled_from(["release", "2027-01-01T00:00:00Z"]),
            }
        ),
    },
    optional={
        "title": st.text(st.characters(categories=("L", "N")), min_size=1, max_size=120),
        "plan_id": st.binary(min_size=16, max_size=16).map(bytes.hex),
        "max_runs": st.integers(1, 1000),
        "isolation": st.sampled_from([{"min_tier": t} for t in ("T1", "T2", "T3")]),
        "views": st.dictionaries(
            st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True),
            st.permutations(["model_owner", "evaluator", "auditor"]).map(lambda r: r[:2]),
            min_size=1,
            max_size=4,
        ),
        "party_evidence": st.fixed_dictionaries(
            dict.fromkeys(
                ("model_owner", "evaluator"),
                st.none()
                | st.just({"kind": "sev-snp", "policy": "0a" * 32, "reference_values": "0b" * 32}),
            )
        ),
        "not_after": st.sampled_from(["2026-12-31T00:00:00Z", "9999-12-31T23:59:59Z"]),
    },
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=EDITS)
def test_valid_plans_parse_print_compare(world: World, changes: dict[str, Any]) -> None:
    data = print_canonical(world.edited(**changes))
    assert parse_plan(data).to_bytes() == data


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_is_refused_or_names_another_plan(world: World, data: st.DataObject) -> None:
    printed = bytearray(world.plan.to_bytes())
    offset = data.draw(st.integers(0, len(printed) - 1))
    printed[offset] ^= data.draw(st.integers(1, 255))
    try:
        plan = parse_plan(bytes(printed))
    except Refusal:
        return
    assert plan.to_bytes() == bytes(printed)
    assert plan.digest != world.plan.digest


def test_no_object_takes_an_unknown_key(world: World) -> None:
    paths = list(objects(world.document))
    assert len(paths) >= 12
    for path in paths:
        with pytest.raises(Refusal) as caught:
            parse(edit(world.document, (*path, "zz_unknown"), 1))
        # A view is a free key: there the value is wrong, not the name.
        expected = "document_field_type" if path == ("views",) else "document_field_unknown"
        assert caught.value.code == expected


def test_no_field_may_be_missing(world: World) -> None:
    for path in objects(world.document):
        for key in at(world.document, path):
            if path == ("views",):
                continue
            with pytest.raises(Refusal) as caught:
                parse(edit(world.document, (*path, key), ...))
            assert caught.value.code == "document_field_missing", (*path, key)


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("type",), "https://w3id.org/double-blind/plan/v2", "document_field_value"),
        (("plan_id",), "0f" * 15, "document_field_value"),
        (("title",), "", "document_field_value"),
        (("title",), "a‮b", "document_field_value"),
        (("model", "commitment"), "11" * 31, "document_field_value"),
        (("model", "commitment"), "AA" * 32, "document_field_value"),
        (("model", "max_bytes"), 0, "document_field_value"),
        (("suite", "max_files"), 0, "document_field_value"),
        (("bundle", "salt"), "44" * 31, "document_field_value"),
        (("bundle", "environment"), "Python", "document_field_value"),
        (("engine", "dtype"), "float16", "document_field_value"),
        (("engine", "threads"), 0, "document_field_value"),
        (("engine", "batch"), 2, "document_field_value"),
        (("engine", "seed"), -1, "document_field_value"),
        (("engine", "temperature"), "-0.5", "plan_engine_temperature"),
        (("engine", "temperature"), "2.1", "plan_engine_temperature"),
        (("engine", "temperature"), "0.0", "document_field_value"),
        (("engine", "top_p"), "0", "plan_engine_top_p"),
        (("engine", "top_p"), "1.1", "plan_engine_top_p"),
        (("engine", "max_new_tokens"), 4096, "plan_engine_context"),
        (("limits", "result_bytes"), 2**20, "document_field_value"),
        (("limits", "wall_seconds"), 0, "document_field_value"),
        (("limits", "max_samples"), True, "document_field_type"),
        (("isolation", "min_tier"), "T0", "document_field_value"),
        (("attestation_policy",), None, "document_field_type"),
        (("views",), {}, "document_field_value"),
        (("views", "summary"), [], "document_field_value"),
        (("views", "summary"), ["evaluator", "evaluator"], "document_field_value"),
        (("views", "summary"), ["host"], "plan_unknown_role"),
        (("views", "summary"), ["reviewer"], "plan_view_recipient"),
        (("publication", "may_publish"), ["host"], "plan_unknown_role"),
        (("publication", "may_publish"), ["auditor"], "plan_publisher_without_view"),
        (("publication", "not_before"), "never", "document_time"),
        (("party_evidence", "evaluator"), {}, "document_field_missing"),
        (("max_runs",), 0, "document_field_value"),
        (("max_runs",), 1001, "document_field_value"),
        (("not_after",), "2026-12-31", "document_time"),
        (("parties",), [], "document_field_value"),
    ],
)
def test_refusals(world: World, path: Path, value: Any, code: str) -> None:
    expect_refusal(code, lambda: parse(edit(world.document, path, value)))


def test_exactly_one_party_of_each_approving_role(world: World) -> None:
    parties = world.document["parties"]
    for index in (0, 1):
        without = [party for place, party in enumerate(parties) if place != index]
        expect_refusal(
            "plan_party_not_single", lambda without=without: parse(world.edited(parties=without))
        )
        twin = make_party(parties[index]["role"], "Twin").party.fields()
        expect_refusal(
            "plan_party_not_single",
            lambda twin=twin: parse(world.edited(parties=[*parties, twin])),
        )


def test_parties_are_distinct(world: World) -> None:
    owner, evaluator = world.owner, world.evaluator
    other = make_party("reviewer", "Other")
    same_subject = make_certificate(other.tls_key, "Owner")
    signing_as_tls = make_certificate(owner.signing_key, "Another")
    variants = {
        "signing_key": b64(owner.party.signing_key),
        "recipient_key": b64(evaluator.party.recipient_key),
        "tls_certificate": b64(owner.tls_certificate),
        "name": "OWNER",
    }
    cases = [{**other.party.fields(), key: value} for key, value in variants.items()]
    cases.append({**other.party.fields(), "tls_certificate": b64(same_subject)})
    cases.append({**other.party.fields(), "tls_certificate": b64(signing_as_tls)})
    cases.append({**other.party.fields(), "name": "Ｏｗｎｅｒ"})
    for case in cases:
        parties = [*world.document["parties"], case]
        expect_refusal(
            "plan_party_not_distinct", lambda parties=parties: parse(world.edited(parties=parties))
        )
    parse(world.edited(parties=[*world.document["parties"], other.party.fields()]))


def test_parties_are_found_by_role_and_certificate(world: World) -> None:
    plan = world.plan
    assert plan.party("model_owner") == world.owner.party
    assert plan.parties_by_role["reviewer"] == ()
    assert plan.party_of_spki(world.auditor.party.tls_spki_sha256).role == "auditor"
    expect_refusal("plan_party_not_single", lambda: plan.party("reviewer"))
    expect_refusal("plan_party_not_single", lambda: plan.party("host"))
    expect_refusal("peer_unknown", lambda: plan.party_of_spki(b"\x00" * 32))


def test_a_view_has_one_recipient_a_role() -> None:
    parties = [make_party(role, role) for role in ("model_owner", "evaluator")]
    parties += [make_party("reviewer", name) for name in ("R1", "R2")]
    document = plan_json([keys.party for keys in parties], demo_policy().digest)
    plan = parse_plan(print_canonical(document))
    assert [party.name for party in plan.parties_by_role["reviewer"]] == ["R1", "R2"]
    document["views"]["summary"].append("reviewer")
    expect_refusal("plan_view_recipient", lambda: parse(document))


def test_artifacts_and_documents(world: World) -> None:
    assert world.plan.artifact("model").max_files == 20
    expect_refusal("plan_unknown_artifact", lambda: world.plan.artifact("digest"))
    demand = {"kind": "tdx", "policy": "0a" * 32, "reference_values": "77" * 32}
    plan = world.other_plan(party_evidence={"model_owner": demand, "evaluator": None})
    assert plan.documents() == ("66" * 32, "77" * 32, world.policy.digest, "0a" * 32)


def test_expiry(world: World) -> None:
    plan = world.plan
    plan.refuse_expired(NOW)
    plan.refuse_expired(plan.not_after)
    late = plan.not_after + dt.timedelta(microseconds=1)
    expect_refusal("plan_expired", lambda: plan.refuse_expired(late))
