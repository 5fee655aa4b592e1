"""Real parties, plans and policies for tests; every key is fresh."""

from __future__ import annotations

import base64
import copy
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from enclave.core.approval import sign_approval
from enclave.core.canonical import parse_json_object, print_canonical
from enclave.core.errors import Refusal
from enclave.core.hpke import RecipientPrivateKey, generate_private, public_bytes
from enclave.core.party import Party
from enclave.core.plan import Plan, parse_plan
from enclave.core.result_policy import ResultPolicy, parse_authored_result_policy
from enclave.core.signing_key import print_signing_key
from enclave.core.vocabulary import PLAN_TYPE

NOW = dt.datetime(2026, 10, 1, 12, 0, 0, tzinfo=dt.UTC)
NOT_AFTER = "2026-12-31T23:59:59Z"
DEMO_POLICY = Path(__file__).parents[2] / "policies" / "result_demo.json"


@dataclass(frozen=True)
class PartyKeys:
    """A party with its private keys."""

    role: str
    name: str
    signing_key: ec.EllipticCurvePrivateKey
    tls_key: ec.EllipticCurvePrivateKey
    tls_certificate: bytes
    recipient_key: RecipientPrivateKey

    @cached_property
    def party(self) -> Party:
        return Party(
            self.role,
            self.name,
            print_signing_key(self.signing_key.public_key()),
            self.tls_certificate,
            public_bytes(self.recipient_key),
        )


def make_certificate(key: ec.EllipticCurvePrivateKey, common_name: str) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2036, 1, 1, tzinfo=dt.UTC))
        .sign(key, SHA256())
        .public_bytes(Encoding.DER)
    )


def make_party(role: str, name: str) -> PartyKeys:
    tls_key = ec.generate_private_key(ec.SECP256R1())
    return PartyKeys(
        role,
        name,
        ec.generate_private_key(ec.SECP256R1()),
        tls_key,
        make_certificate(tls_key, name),
        generate_private(),
    )


def demo_policy_json() -> dict[str, Any]:
    return parse_json_object(DEMO_POLICY.read_bytes())


def demo_policy() -> ResultPolicy:
    return parse_authored_result_policy(DEMO_POLICY.read_bytes())


def plan_json(parties: list[Party], policy_digest: str) -> dict[str, Any]:
    return {
        "type": PLAN_TYPE,
        "title": "Truthfulness of a small model",
        "plan_id": "0f" * 16,
        "parties": [party.fields() for party in parties],
        "model": {"commitment": "11" * 32, "max_bytes": 600_000_000, "max_files": 20},
        "suite": {"commitment": "22" * 32, "max_bytes": 10_000_000, "max_files": 10},
        "bundle": {
            "commitment": "33" * 32,
            "max_bytes": 1_000_000,
            "max_files": 10,
            "salt": "44" * 32,
            "environment": "python-3.11",
        },
        "engine": {
            "dtype": "float32",
            "threads": 2,
            "batch": 1,
            "seed": 7,
            "temperature": "0",
            "top_p": "1",
            "max_new_tokens": 64,
            "max_context": 2048,
            "template_sha256": "55" * 32,
        },
        "limits": {
            "wall_seconds": 600,
            "cpu_seconds": 1200,
            "memory_bytes": 2**31,
            "tmp_bytes": 2**20,
            "processes": 32,
            "open_files": 256,
            "result_bytes": 16384,
            "max_samples": 200,
        },
        "isolation": {"min_tier": "T1"},
        "attestation_policy": "66" * 32,
        "reference_values": "77" * 32,
        "result_policy": policy_digest,
        "views": {"summary": ["model_owner", "evaluator"]},
        "publication": {"may_publish": ["evaluator"], "not_before": "release"},
        "party_evidence": {"model_owner": None, "evaluator": None},
        "max_runs": 3,
        "not_after": NOT_AFTER,
    }


@dataclass(frozen=True)
class World:
    """Two parties, an auditor and a plan between them."""

    owner: PartyKeys
    evaluator: PartyKeys
    auditor: PartyKeys
    policy: ResultPolicy
    document: dict[str, Any]

    @cached_property
    def plan(self) -> Plan:
        return parse_plan(print_canonical(self.document))

    def edited(self, **changes: Any) -> dict[str, Any]:
        """A deep copy of the plan document with top-level fields replaced."""
        document = copy.deepcopy(self.document)
        document.update(changes)
        return document

    def other_plan(self, **changes: Any) -> Plan:
        return parse_plan(print_canonical(self.edited(**changes)))


def make_world() -> World:
    owner = make_party("model_owner", "Owner")
    evaluator = make_party("evaluator", "Evaluator")
    auditor = make_party("auditor", "Auditor")
    policy = demo_policy()
    document = plan_json([owner.party, evaluator.party, auditor.party], policy.digest)
    return World(owner, evaluator, auditor, policy, document)


def approve(world: World, *, max_runs: int = 2, nonce: bytes = b"n" * 32) -> tuple[bytes, bytes]:
    plan = world.plan
    return (
        sign_approval(
            plan, "model_owner", world.owner.signing_key, nonce, max_runs, plan.not_after
        ),
        sign_approval(
            plan, "evaluator", world.evaluator.signing_key, nonce, max_runs, plan.not_after
        ),
    )


def frame_json() -> dict[str, Any]:
    """A result that the demo policy releases."""
    return {
        "metrics": {
            "truthfulqa_mc1_accuracy": {"value": "0.305", "n": 100},
            "truthfulqa_mc1_baseline": {"value": "0.25", "n": 100},
            "arithmetic_accuracy": {"value": "1", "n": 20},
            "arithmetic_baseline": {"value": "0", "n": 20},
        },
        "controls": {"oracle": "1", "null_answer": "0"},
        "completed": 120,
        "failed": 0,
    }


def print_json(value: Any) -> bytes:
    """JSON as an ordinary encoder writes it."""
    return json.dumps(value).encode()


def expect_refusal(code: str, action: Callable[[], object]) -> Refusal:
    """Run `action`; it must refuse with exactly this code and with text free of surprises."""
    with pytest.raises(Refusal) as caught:
        action()
    assert caught.value.code == code, str(caught.value)
    return caught.value


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
