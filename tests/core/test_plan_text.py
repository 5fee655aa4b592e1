"""What a party reads: `plan show` and `plan diff`."""

from __future__ import annotations

from typing import Any

import pytest

from enclave.core.canonical import print_canonical
from enclave.core.plan import Plan, parse_plan
from enclave.core.plan_diff import ABSENT, diff_plans, explain_path, flatten_plan
from enclave.core.plan_explain import explain_plan, print_size
from tests.core.builders import World, expect_refusal, make_party
from tests.core.test_plan import edit, objects


def changed(world: World, *path: str | int, to: Any) -> Plan:
    return parse_plan(print_canonical(edit(world.document, path, to)))


def test_equal_plans_do_not_differ(world: World) -> None:
    assert diff_plans(world.plan, world.plan) == []


def test_every_leaf_has_a_meaning(world: World) -> None:
    demand = {"kind": "tdx", "policy": "0a" * 32, "reference_values": "0b" * 32}
    for plan in (
        world.plan,
        world.other_plan(party_evidence=dict.fromkeys(("model_owner", "evaluator"), demand)),
    ):
        flat = flatten_plan(plan)
        assert len(flat) >= 45
        for path in flat:
            assert explain_path(path)
    with pytest.raises(ValueError, match="no meaning"):
        explain_path("engine.future")


def test_every_object_of_the_document_shows_in_the_flat_plan(world: World) -> None:
    flat = flatten_plan(world.plan)
    for path in objects(world.document):
        if path and path[0] != "parties":
            assert any(key.startswith(".".join(map(str, path))) for key in flat)


@pytest.mark.parametrize(
    ("path", "value", "old", "new", "words"),
    [
        (("max_runs",), 5, "3", "5", "more than before"),
        (("engine", "seed"), 1, "7", "1", "seed of sampling"),
        (("limits", "memory_bytes"), 2**30, str(2**31), str(2**30), "less than before"),
        (("views", "summary"), ["evaluator"], "model_owner, evaluator", "evaluator", "learns"),
        (("publication", "may_publish"), [], "evaluator", "nobody", "publish"),
        (("model", "commitment"), "12" * 32, "11" * 32, "12" * 32, "which model"),
        (("result_policy",), "12" * 32, None, "12" * 32, "what may be released"),
    ],
)
def test_one_change_is_one_line(
    world: World, path: tuple[str, ...], value: Any, old: str | None, new: str, words: str
) -> None:
    (change,) = diff_plans(world.plan, changed(world, *path, to=value))
    assert change.path == ".".join(path)
    assert (change.old, change.new) == (old or world.policy.digest, new)
    assert words in change.meaning


def test_a_changed_key_shows_its_fingerprint(world: World) -> None:
    fresh = make_party("model_owner", "Owner")
    parties = [fresh.party.fields(), *world.document["parties"][1:]]
    changes = diff_plans(world.plan, world.other_plan(parties=parties))
    assert {change.path for change in changes} == {
        "parties.model_owner.signing_key",
        "parties.model_owner.tls_certificate",
        "parties.model_owner.recipient_key",
    }
    assert changes[0].new == f"sha256:{fresh.party.key_id}"
    assert changes[0].meaning == "who can approve in this party's name"


def test_added_and_removed_parties_show(world: World) -> None:
    shorter = world.other_plan(parties=world.document["parties"][:2])
    removed = {c.path: c for c in diff_plans(world.plan, shorter)}
    assert removed["parties.auditor.name"].new == ABSENT
    assert {c.old for c in diff_plans(shorter, world.plan)} == {ABSENT}


def text_of(plan: Plan, documents: dict[str, bytes]) -> str:
    return "\n".join(
        line
        for section in explain_plan(plan, documents)
        for line in (section.title, *section.lines)
    )


def test_explanation_tells_who_learns_what(world: World) -> None:
    text = text_of(world.plan, {world.policy.digest: world.policy.to_bytes()})
    for words in (
        world.plan.digest,
        "'Owner'",
        world.owner.party.key_id,
        "greedy decoding",
        "2 GiB of memory",
        "isolation tier T1",
        "model_owner: truthfulqa_mc1_accuracy",
        "0 to 1 in steps of 0.01, over at least 10 samples, 7 bits",
        "No release unless control oracle is exactly 1.",
        "= 45 bits a run.",
        "3 runs: 135 bits of the 256 allowed.",
        "evaluator shows no hardware evidence",
        "document not at hand",
    ):
        assert words in text, words


def test_explanation_names_documents(world: World) -> None:
    policy = b'{"name":"prod","type":"x"}'
    from enclave.core.canonical import digest_bytes

    plan = changed(world, "attestation_policy", to=digest_bytes(policy))
    assert "'prod' (" in text_of(plan, {digest_bytes(policy): policy})
    spoofed = "\n" * 3
    hostile = print_canonical({"name": spoofed})
    plan = changed(world, "attestation_policy", to=digest_bytes(hostile))
    assert spoofed not in text_of(plan, {digest_bytes(hostile): hostile})
    junk = b"\xff"
    plan = changed(world, "attestation_policy", to=digest_bytes(junk))
    assert digest_bytes(junk) in text_of(plan, {digest_bytes(junk): junk})


def test_explanation_without_the_result_policy_says_so(world: World) -> None:
    assert "Do not approve." in text_of(world.plan, {})


def test_explanation_refuses_another_document(world: World) -> None:
    documents = {world.policy.digest: world.policy.to_bytes() + b" "}
    expect_refusal("plan_document_digest", lambda: explain_plan(world.plan, documents))


def test_explanation_of_other_terms(world: World) -> None:
    demand = {"kind": "sev-snp", "policy": "0a" * 32, "reference_values": "0b" * 32}
    plan = world.other_plan(
        publication={"may_publish": [], "not_before": "2027-01-01T00:00:00Z"},
        party_evidence={"model_owner": demand, "evaluator": None},
        engine={**world.document["engine"], "temperature": "0.7", "top_p": "0.9"},
    )
    text = text_of(plan, {})
    assert "Nobody may publish." in text
    assert "model_owner must show sev-snp evidence" in text
    assert "sampling at temperature 0.7, top_p 0.9" in text
    later = changed(world, "publication", "not_before", to="2027-01-01T00:00:00Z")
    assert "from 2027-01-01T00:00:00Z: evaluator" in text_of(later, {})


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**30, "1 GiB"),
        (2**51, "2048 TiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert print_size(size) == text
