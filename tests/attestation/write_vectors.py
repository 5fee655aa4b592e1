"""Write tests/vectors/attestation anew: `python -m tests.attestation.write_vectors`.

Every key is made here and forgotten; a vector holds public bytes only.
"""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import rfc8785

from attestation.types import EvidenceBundle, RawEvidence
from tests.attestation.forging import (
    BINDING,
    LEAF,
    NOW,
    Certificate,
    Forger,
    high_s,
    policy,
    reference_values,
)

DIRECTORY = Path(__file__).parents[1] / "vectors" / "attestation"
ACCEPTED = {"stage": "accepted", "code": "", "exit_code": 0}


def refused(stage: str, code: str) -> dict[str, Any]:
    exit_codes = {"parse": 2, "verify": 3, "endorse": 4, "appraise": 5, "policy": 7}
    return {"stage": stage, "code": code, "exit_code": exit_codes[stage]}


class Writer:
    """Defaults of a vector that is accepted; each call changes something."""

    def __init__(self) -> None:
        self.forger = Forger.new()
        self.count = 0

    def write(
        self,
        name: str,
        expect: dict[str, Any],
        *,
        forger: Forger | None = None,
        evidence: bytes | None = None,
        roots: bytes | None = None,
        policy_bytes: bytes | None = None,
        values: bytes | None = None,
        binding: bytes = BINDING,
        **overrides: object,
    ) -> None:
        used = forger or self.forger
        data = used.bundle(**overrides).to_bytes() if evidence is None else evidence
        document = {
            "name": name,
            "evidence": base64.b64encode(data).decode(),
            "simulated_roots": (used.roots.simulated if roots is None else roots).decode(),
            "policy": (policy_bytes or policy().to_bytes()).decode(),
            "reference_values": (values or reference_values().to_bytes()).decode(),
            "binding": binding.hex(),
            "now": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "expect": expect,
        }
        target = DIRECTORY / f"{name}.json"
        target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        self.count += 1


def bundle_of(*payloads: bytes, kind: str = "simulated") -> bytes:
    return EvidenceBundle(tuple(RawEvidence(kind, payload) for payload in payloads)).to_bytes()


def flipped(data: bytes, index: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


def write_parse(writer: Writer) -> None:
    forger = writer.forger
    good = forger.bundle().to_bytes()
    payload = forger.payload()
    signature = forger.sign(forger.fields())
    parse = [
        ("bundle-trailing-newline", "evidence_not_canonical", good + b"\n"),
        ("bundle-truncated", "evidence_not_json", good[:-1]),
        ("bundle-two-spellings", "evidence_not_canonical", json.dumps(json.loads(good)).encode()),
        (
            "bundle-unknown-key",
            "evidence_field_unknown",
            rfc8785.dumps(json.loads(good) | {"zone": "a"}),
        ),
        ("bundle-empty", "evidence_field_value", rfc8785.dumps(json.loads(good) | {"items": []})),
        (
            "bundle-duplicate-item",
            "evidence_duplicate",
            rfc8785.dumps(json.loads(good) | {"items": json.loads(good)["items"] * 2}),
        ),
        ("payload-trailing-byte", "simulated_not_json", bundle_of(payload + b"\x00")),
        ("payload-truncated", "simulated_not_json", bundle_of(payload[:-1])),
        (
            "payload-without-warning",
            "simulated_field_value",
            bundle_of(forger.payload(warning="genuine")),
        ),
        (
            "payload-short-report-data",
            "simulated_field_value",
            bundle_of(forger.payload(report_data="00" * 63)),
        ),
        (
            "payload-upper-case-hex",
            "simulated_field_value",
            bundle_of(forger.payload(measurement="AA" * 48)),
        ),
        (
            "signature-high-s",
            "simulated_signature_format",
            bundle_of(forger.payload(high_s(signature))),
        ),
        (
            "leaf-trailing-byte",
            "simulated_certificate",
            bundle_of(
                forger.payload(
                    leaf=base64.b64encode(
                        base64.b64decode(forger.fields()["leaf"]) + b"\x00"
                    ).decode()
                )
            ),
        ),
    ]
    for name, code, evidence in parse:
        writer.write(name, refused("parse", code), evidence=evidence)


def write_verify(writer: Writer) -> None:
    forger = writer.forger
    expired = forger.with_leaf(Certificate(last=NOW - timedelta(seconds=1)))
    future = forger.with_leaf(Certificate(first=NOW + timedelta(seconds=1)))
    as_ca = forger.with_leaf(Certificate(ca=True))
    foreign = refused("verify", "simulated_chain")
    invalid = refused("verify", "simulated_signature")
    writer.write("foreign-root-same-name", foreign, roots=Forger.new().roots.simulated)
    writer.write(
        "signature-of-other-key",
        invalid,
        evidence=forger.bundle(Forger.new().sign(forger.fields())).to_bytes(),
    )
    writer.write(
        "measurement-changed-after-signing",
        invalid,
        evidence=forger.bundle(forger.sign(forger.fields()), measurement="aa" * 48).to_bytes(),
    )
    writer.write("leaf-is-a-ca", refused("verify", "simulated_leaf_profile"), forger=as_ca)
    writer.write("leaf-expired", refused("endorse", "simulated_leaf_expired"), forger=expired)
    writer.write("leaf-future", refused("endorse", "simulated_leaf_not_yet_valid"), forger=future)
    writer.write("no-root", refused("endorse", "trust_root_missing"), roots=b"")
    writer.write(
        "kind-without-verifier",
        refused("endorse", "kind_not_supported"),
        evidence=bundle_of(b"x", kind="sev-snp"),
    )


def write_appraise(writer: Writer) -> None:
    writer.write("accepted", ACCEPTED)
    writer.write("accepted-second-leaf", ACCEPTED, forger=writer.forger.with_leaf(LEAF))
    writer.write(
        "relayed-binding", refused("appraise", "binding_mismatch"), binding=flipped(BINDING, 63)
    )
    writer.write(
        "other-measurement", refused("appraise", "simulated_measurement"), measurement="aa" * 48
    )
    writer.write("debug-on", refused("appraise", "simulated_debug"), debug=True)
    writer.write("tcb-below-floor", refused("appraise", "simulated_tcb"), tcb=0)
    writer.write(
        "too-old",
        refused("appraise", "simulated_age"),
        policy_bytes=policy(maximum_age_seconds=60).to_bytes(),
        issued_at="2026-12-01T11:58:59Z",
    )
    writer.write(
        "production-policy",
        refused("appraise", "simulated_refused"),
        policy_bytes=policy("production_snp_h100").to_bytes(),
    )
    writer.write(
        "deny-all-policy",
        refused("appraise", "policy_denies_all"),
        policy_bytes=policy("deny_all").to_bytes(),
    )
    writer.write(
        "two-items-of-one-kind",
        refused("appraise", "kind_repeated"),
        evidence=bundle_of(writer.forger.payload(tcb=1), writer.forger.payload(tcb=2)),
    )
    empty = json.loads(policy().to_bytes()) | {"kinds": {}, "unsafe_simulated": False}
    writer.write(
        "policy-empty", refused("policy", "policy_empty"), policy_bytes=rfc8785.dumps(empty)
    )
    unknown = json.loads(policy().to_bytes()) | {"allow": True}
    writer.write(
        "policy-unknown-key",
        refused("policy", "policy_field_unknown"),
        policy_bytes=rfc8785.dumps(unknown),
    )
    missing = json.loads(policy().to_bytes())
    del missing["kinds"]["simulated"]["debug"]
    writer.write(
        "policy-missing-rule",
        refused("policy", "policy_field_missing"),
        policy_bytes=rfc8785.dumps(missing),
    )
    writer.write(
        "policy-indented",
        refused("policy", "policy_not_canonical"),
        policy_bytes=json.dumps(json.loads(policy().to_bytes()), indent=1).encode(),
    )


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for old in DIRECTORY.glob("*.json"):
        old.unlink()
    writer = Writer()
    write_parse(writer)
    write_verify(writer)
    write_appraise(writer)
    print(f"{writer.count} vectors in {DIRECTORY}")


if __name__ == "__main__":
    main()
