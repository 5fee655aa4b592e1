"""Write tests/vectors/core anew: `python -m tests.core.vector_writer`.

Keys are fresh and forgotten, so the files differ from run to run; what every
implementation must answer is in them.  Cases of `documents.json` are edits of
a base document (RFC 6902 add, remove, replace), printed canonically.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from enclave.core.approval import sign_approval
from enclave.core.binding import BindingInputs, compute_binding, gpu_nonce, party_binding
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.dsse import Envelope, parse_envelope, sign_envelope
from enclave.core.errors import Refusal
from enclave.core.receipt import build_receipt_statement, close_receipt, closing_inputs
from enclave.core.receipt import sign_receipt as sign_statement
from enclave.core.run_facts import RunFacts
from enclave.core.statement import Statement
from enclave.core.times import print_time
from enclave.core.vocabulary import ENCLAVE_RUN_TYPE
from tests.core.builders import NOW, World, approve, b64, frame_json, make_party, make_world
from tests.core.document_vectors import document_cases
from tests.core.sessions import Session, attester, make_facts, open_session
from tests.core.test_plan import edit

VECTORS = Path(__file__).parents[1] / "vectors" / "core"
Case = dict[str, Any]


def binding_json(inputs: BindingInputs) -> Case:
    return {
        "plan": inputs.plan,
        "session": inputs.session,
        "tls_spki_sha256": inputs.tls_spki_sha256.hex(),
        "hpke_key": b64(inputs.hpke_key),
        "signing_key": b64(inputs.signing_key),
        "nonces": [[label, nonce.hex()] for label, nonce in inputs.nonces],
    }


def binding_cases(world: World) -> Case:
    owner = world.owner.party
    base = BindingInputs(
        "00" * 31 + "01",
        "00" * 15 + "02",
        bytes(range(32)),
        owner.recipient_key,
        owner.signing_key,
        (("model_owner", b"\x11" * 32),),
    )
    labels = ("model_owner", "evaluator", "reviewer", "auditor", "receipt")
    variants = {
        "one nonce": base,
        "two nonces": replace(base, nonces=(*base.nonces, ("evaluator", b"\x22" * 32))),
        "two nonces, other order": replace(
            base, nonces=(("evaluator", b"\x22" * 32), *base.nonces)
        ),
        "receipt nonce": replace(base, nonces=(("receipt", b"\x33" * 32),)),
        "every label": replace(
            base, nonces=tuple((label, bytes([i]) * 32) for i, label in enumerate(labels))
        ),
        "other plan": replace(base, plan="ff" * 32),
        "other session": replace(base, session="ff" * 16),
        "other tls key": replace(base, tls_spki_sha256=b"\xff" * 32),
        "other hpke key": replace(base, hpke_key=world.evaluator.party.recipient_key),
        "other signing key": replace(base, signing_key=world.evaluator.party.signing_key),
        "same nonce, other label": replace(base, nonces=(("evaluator", b"\x11" * 32),)),
    }
    cases: list[Case] = [
        {
            "name": name,
            "inputs": binding_json(inputs),
            "binding": compute_binding(inputs).hex(),
            "gpu_nonce": gpu_nonce(compute_binding(inputs)).hex(),
        }
        for name, inputs in variants.items()
    ]
    good = binding_json(base)
    bad: dict[str, tuple[Case, str]] = {
        "no nonce": ({"nonces": []}, "binding_nonce_missing"),
        "label twice": (
            {"nonces": [["evaluator", "00" * 32], ["evaluator", "01" * 32]]},
            "binding_nonce_duplicate",
        ),
        "unknown label": ({"nonces": [["host", "00" * 32]]}, "binding_nonce_label"),
        "short nonce": ({"nonces": [["evaluator", "00" * 31]]}, "binding_input"),
        "upper hex": ({"plan": "AB" * 32}, "binding_input"),
        "short session": ({"session": "00" * 15}, "binding_input"),
        "short tls hash": ({"tls_spki_sha256": "00" * 31}, "binding_input"),
        "short hpke key": ({"hpke_key": b64(base.hpke_key[:-1])}, "binding_input"),
        "malformed hpke key": ({"hpke_key": b64(b"\xff" * 1216)}, "binding_input"),
        "low-order hpke key": (
            {"hpke_key": b64(base.hpke_key[:1184] + b"\x00" * 32)},
            "binding_input",
        ),
        "malformed signing key": ({"signing_key": b64(b"key")}, "binding_input"),
    }
    cases += [
        {"name": name, "inputs": {**good, **change}, "error": code}
        for name, (change, code) in bad.items()
    ]
    party = [
        {
            "name": f"party binding of {role}",
            "plan": base.plan,
            "session": base.session,
            "role": role,
            "signing_key": b64(base.signing_key),
            "challenge": "44" * 32,
            "binding": party_binding(
                base.plan, base.session, role, base.signing_key, b"\x44" * 32
            ).hex(),
        }
        for role in ("model_owner", "evaluator")
    ]
    return {"page": "docs/spec/binding.md", "cases": cases, "party_cases": party}


def approval_cases(world: World) -> Case:
    plan, nonce = world.plan, b"n" * 32
    owner, evaluator = approve(world)
    other = approve(replace(world, document=world.edited(title="Another")))
    stranger = make_party("model_owner", "Stranger")
    parsed = parse_envelope(owner, max_payload=4096)
    document = json.loads(parsed.payload)

    def signed(change: Case, keys: Any = world.owner) -> bytes:
        altered = {**document, "predicate": {**document["predicate"], **change}}
        return sign_envelope(print_canonical(altered), keys.signing_key).to_bytes()

    r, s = decode_dss_signature(parsed.signature)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    high = replace(parsed, signature=encode_dss_signature(r, order - s)).to_bytes()
    altered = replace(parsed, payload=parsed.payload.replace(b":2,", b":3,")).to_bytes()
    claimed = Envelope(
        parsed.payload, parsed.keyid, sign_envelope(parsed.payload, stranger.signing_key).signature
    ).to_bytes()
    once = sign_approval(plan, "evaluator", world.evaluator.signing_key, nonce, 1, plan.not_after)
    table: list[tuple[str, list[bytes], str | int]] = [
        ("quorum", [owner, evaluator], 2),
        ("quorum, other order", [evaluator, owner], 2),
        ("the smaller number of runs", [owner, once], 1),
        ("none", [], "approval_missing"),
        ("owner alone", [owner], "approval_missing"),
        ("evaluator alone", [evaluator], "approval_missing"),
        ("owner twice", [owner, evaluator, owner], "approval_duplicate"),
        ("for another plan", [other[0], evaluator], "approval_other_plan"),
        ("by a stranger", [signed({}, stranger), evaluator], "approval_foreign_key"),
        ("by a stranger who claims the key id", [claimed, evaluator], "approval_signature"),
        ("altered payload", [altered, evaluator], "approval_signature"),
        ("high s", [high, evaluator], "approval_signature"),
        ("as the other role", [signed({"role": "evaluator"}), evaluator], "approval_role_mismatch"),
        (
            "by the auditor",
            [owner, signed({"role": "auditor"}, world.auditor)],
            "approval_role_mismatch",
        ),
        (
            "expired",
            [signed({"not_after": "2026-01-01T00:00:00Z"}), evaluator],
            "approval_expired",
        ),
        ("more runs than the plan", [signed({"max_runs": 4}), evaluator], "approval_exceeds_plan"),
        (
            "longer than the plan",
            [signed({"not_after": "2027-01-01T00:00:00Z"}), evaluator],
            "approval_exceeds_plan",
        ),
        ("a rejection", [signed({"decision": "reject"}), evaluator], "document_field_value"),
        ("unknown key", [signed({"note": "x"}), evaluator], "document_field_unknown"),
        ("spaced", [json.dumps(json.loads(owner)).encode(), evaluator], "document_not_canonical"),
    ]
    return {
        "page": "docs/spec/approval.md",
        "plan": b64(plan.to_bytes()),
        "now": print_time(NOW),
        "cases": [
            {
                "name": name,
                "envelopes": [b64(envelope) for envelope in envelopes],
                **({"error": expected} if isinstance(expected, str) else {"max_runs": expected}),
            }
            for name, envelopes, expected in table
        ],
    }


def frame_cases(world: World) -> Case:
    accuracy = ("metrics", "truthfulqa_mc1_accuracy")
    steps = {
        "truthfulqa_mc1_accuracy": 30,
        "truthfulqa_mc1_baseline": 25,
        "arithmetic_accuracy": 100,
        "arithmetic_baseline": 0,
    }
    edits: list[tuple[str, tuple[str, ...], Any, Any]] = [
        ("good", (*accuracy, "value"), "0.3", 30),
        ("tie to even, down", (*accuracy, "value"), "0.305", 30),
        ("tie to even, up", (*accuracy, "value"), "0.315", 32),
        ("lowest", (*accuracy, "value"), "0", 0),
        ("highest", (*accuracy, "value"), "1", 100),
        ("NaN", (*accuracy, "value"), "NaN", "result_nan"),
        ("infinite", (*accuracy, "value"), "-inf", "result_nan"),
        ("negative zero", (*accuracy, "value"), "-0", "result_negative_zero"),
        ("negative zero, digits", (*accuracy, "value"), "-0.0", "result_negative_zero"),
        ("number", (*accuracy, "value"), 1, "result_not_decimal"),
        ("exponent", (*accuracy, "value"), "1e-1", "result_not_decimal"),
        ("trailing zero", (*accuracy, "value"), "0.50", "result_not_decimal"),
        ("plus sign", (*accuracy, "value"), "+0.5", "result_not_decimal"),
        ("other digits", (*accuracy, "value"), "٠.٥", "result_not_decimal"),
        ("text", (*accuracy, "value"), "the answer", "result_not_decimal"),
        ("13 digits", (*accuracy, "value"), "0.1234567890123", "result_too_many_digits"),
        ("above", (*accuracy, "value"), "1.01", "result_out_of_range"),
        ("below", (*accuracy, "value"), "-0.01", "result_out_of_range"),
        ("few samples", (*accuracy, "n"), 19, "result_below_min_n"),
        ("more samples than run", (*accuracy, "n"), 121, "result_n_over_completed"),
        ("textual n", (*accuracy, "n"), "100", "result_malformed"),
        ("note", (*accuracy, "note"), "x", "result_malformed"),
        ("per item", ("metrics", "items"), {"value": "1", "n": 20}, "result_unknown_metric"),
        ("missing metric", accuracy, ..., "result_missing_metric"),
        ("missing control", ("controls", "oracle"), ..., "control_missing"),
        ("unknown control", ("controls", "x"), "1", "control_unknown"),
        ("failed control", ("controls", "oracle"), "0.99", "control_failed"),
        ("too many samples", ("completed",), 201, "result_too_many_samples"),
        ("extra", ("log",), "x", "result_malformed"),
    ]
    cases: list[Case] = []
    for name, path, value, expected in edits:
        frame = json.dumps(edit(frame_json(), path, value), ensure_ascii=False)
        outcome = (
            {"error": expected}
            if isinstance(expected, str)
            else {"steps": {**steps, "truthfulqa_mc1_accuracy": expected}}
        )
        cases.append({"name": name, "frame": b64(frame.encode()), **outcome})
    raw = {
        "empty": (b"", "result_malformed"),
        "array": (b"[]", "result_malformed"),
        "JSON NaN": (b'{"a":NaN}', "result_nan"),
        "JSON float": (b'{"a":0.5}', "result_not_decimal"),
        "JSON negative zero": (b'{"a":-0.0}', "result_negative_zero"),
        "key twice": (b'{"a":1,"a":1}', "result_malformed"),
        "deep": (b"[" * 9000, "result_malformed"),
        "too large": (b" " * 16385, "result_too_large"),
    }
    cases += [{"name": n, "frame": b64(f), "error": code} for n, (f, code) in raw.items()]
    return {
        "page": "docs/spec/release.md",
        "plan": b64(world.plan.to_bytes()),
        "policy": b64(world.policy.to_bytes()),
        "cases": cases,
    }


def receipt_cases(world: World, session: Session) -> Case:
    facts = make_facts(world, session)

    def closed(payload: bytes) -> bytes:
        closing = attester().collect_evidence(compute_binding(closing_inputs(facts, payload)))
        return close_receipt(sign_envelope(payload, session.signing_key), closing.to_bytes())

    def stated(changed: RunFacts) -> bytes:
        digest = digest_bytes(print_canonical(changed.to_json()))
        subject = (("plan", changed.plan.digest), ("run", digest))
        return closed(Statement(subject, ENCLAVE_RUN_TYPE, changed.to_json()).to_bytes())

    statement = build_receipt_statement(facts)
    sign_statement(statement, session.signing_key)
    good = closed(statement)
    document = json.loads(good)
    flipped = bytearray(base64.b64decode(document["envelope"]["signatures"][0]["sig"]))
    flipped[-1] ^= 1
    altered = edit(document, ("envelope", "signatures", 0, "sig"), b64(bytes(flipped)))  # type: ignore[arg-type]
    subject = (("plan", "00" * 32), ("run", "00" * 32))
    relabelled = closed(Statement(subject, ENCLAVE_RUN_TYPE, facts.to_json()).to_bytes())
    table: list[tuple[str, bytes, str | None]] = [
        ("good", good, None),
        ("altered signature", print_canonical(altered), "receipt_signature"),
        ("wrong subject", relabelled, "receipt_subject"),
        ("run past max", stated(replace(facts, run=3)), "receipt_run_past_max"),
        ("swapped approvals", stated(replace(facts, approvals=facts.approvals[::-1])),
         "receipt_approval_order"),
        ("one release short", stated(replace(facts, releases=facts.releases[:1])),
         "receipt_releases"),
        ("evidence of one party", stated(replace(facts, evidence=facts.evidence[:1])),
         "receipt_evidence_missing"),
        ("a probe passed", stated(replace(facts, isolation=replace(
            facts.isolation, probes_refused=19))), "receipt_probe_passed"),
        ("trailing byte", good + b" ", "document_not_canonical"),
    ]  # fmt: skip
    return {
        "page": "docs/spec/receipt.md",
        "cases": [
            {"name": name, "receipt": b64(data), **({} if error is None else {"error": error})}
            for name, data, error in table
        ],
    }


def main() -> None:
    world = make_world()
    session = open_session(world)
    makers: dict[str, Callable[[], Case]] = {
        "binding": lambda: binding_cases(world),
        "documents": lambda: document_cases(world, session),
        "approvals": lambda: approval_cases(world),
        "frames": lambda: frame_cases(world),
        "receipts": lambda: receipt_cases(world, session),
    }
    VECTORS.mkdir(parents=True, exist_ok=True)
    for name, make in makers.items():
        text = json.dumps(make(), indent=1, ensure_ascii=False)
        (VECTORS / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    try:
        main()
    except Refusal as refusal:
        raise SystemExit(str(refusal)) from refusal
