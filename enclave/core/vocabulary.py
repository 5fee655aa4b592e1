"""The words of the protocol: document types, roles, artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

BASE = "https://w3id.org/double-blind"

PLAN_TYPE = f"{BASE}/plan/v1"
PARTY_TYPE = f"{BASE}/party/v1"
RESULT_POLICY_TYPE = f"{BASE}/result-policy/v1"
MANIFEST_TYPE = f"{BASE}/manifest/v1"
SEALED_ARTIFACT_TYPE = f"{BASE}/sealed-artifact/v1"
KEY_GRANT_TYPE = f"{BASE}/key-grant/v1"
RELEASE_TYPE = f"{BASE}/release/v1"
PLAN_APPROVAL_TYPE = f"{BASE}/plan-approval/v1"
ENCLAVE_RUN_TYPE = f"{BASE}/enclave-run/v1"

MODEL_OWNER = "model_owner"
EVALUATOR = "evaluator"
REVIEWER = "reviewer"
AUDITOR = "auditor"
ROLES = (MODEL_OWNER, EVALUATOR, REVIEWER, AUDITOR)
APPROVING_ROLES = (MODEL_OWNER, EVALUATOR)
"""Exactly one party of each of these is in every plan, and both must approve it."""

ARTIFACTS = ("model", "suite", "bundle")
ARTIFACT_OWNER: Mapping[str, str] = MappingProxyType(
    {"model": MODEL_OWNER, "suite": EVALUATOR, "bundle": EVALUATOR}
)
"""Which role seals, uploads and grants an artifact."""

DIGEST_SIZE = 32
SESSION_SIZE = 16
MAX_RUNS = 1000
