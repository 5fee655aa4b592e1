"""The published vectors: each says at which stage, with which code and exit code it ends."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from attestation.appraise import appraise_evidence, parse_policy, parse_reference_values
from attestation.errors import AttestationError
from attestation.parse.times import parse_time
from attestation.verify import parse_evidence_bundle, parse_trust_roots, verify_evidence

DIRECTORY = Path(__file__).parents[1] / "vectors" / "attestation"
VECTORS = sorted(DIRECTORY.glob("*.json"))


def test_vectors_are_found() -> None:
    assert len(VECTORS) >= 35


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    assert vector["name"] == path.stem
    now = parse_time(vector["now"])
    got = {"stage": "accepted", "code": "", "exit_code": 0}
    try:
        policy = parse_policy(vector["policy"].encode())
        values = parse_reference_values(vector["reference_values"].encode())
        roots = parse_trust_roots(simulated=vector["simulated_roots"].encode())
        bundle = parse_evidence_bundle(base64.b64decode(vector["evidence"]))
        appraise_evidence(
            verify_evidence(bundle, roots=roots, now=now),
            policy=policy,
            reference_values=values,
            expected_binding=bytes.fromhex(vector["binding"]),
            now=now,
        )
    except AttestationError as error:
        got = {"stage": error.stage, "code": error.code, "exit_code": error.exit_code}
    assert got == vector["expect"]
