"""Verify an evidence bundle: parse every item, then check signatures, chains and times.

Pure: roots and `now` are arguments, nothing is fetched.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from attestation.errors import EndorsementUnavailable
from attestation.parse.simulated import parse_simulated
from attestation.parse.trust_roots import parse_root_certificates
from attestation.types.claims import Claims
from attestation.types.evidence import SIMULATED, EvidenceBundle, TrustRoots
from attestation.types.result import _VERIFIED, VerifiedEvidence
from attestation.verify.checklist import Checklist
from attestation.verify.simulated import record_simulated

VERIFIABLE_KINDS = (SIMULATED,)
"""Kinds whose verifier exists. Evidence of any other kind is refused, never passed over."""


def verify_evidence(
    bundle: EvidenceBundle, *, roots: TrustRoots, now: datetime
) -> VerifiedEvidence:
    """Verify every item of the bundle at `now` (aware).

    Raises MalformedEvidence if an item does not parse; then, with all findings
    together, SignatureInvalid if a signature or chain is wrong, or
    EndorsementUnavailable if a certificate is out of its time, a root is
    missing or a kind has no verifier (`kind_not_supported`).
    """
    if now.tzinfo is None:
        raise ValueError("now must be aware")
    checks = Checklist()
    for item in bundle.items:
        if item.kind not in VERIFIABLE_KINDS:
            checks.failed(
                f"{item.kind}.verifier",
                EndorsementUnavailable,
                code="kind_not_supported",
                field="kind",
                expected=" or ".join(VERIFIABLE_KINDS),
                got=item.kind,
            )
    checks.raise_failures()
    checks.verified("evidence.format")

    # Every item is parsed before the first one is believed.
    reports = [parse_simulated(item.payload) for item in bundle.items]
    simulated_roots = parse_root_certificates(roots.simulated) if roots.simulated else ()
    claims: list[Claims] = []
    valid_until: list[datetime] = []
    for label, report in zip(item_labels(bundle.kinds), reports, strict=True):
        verified = record_simulated(
            report, roots=simulated_roots, now=now, label=label, checks=checks
        )
        if verified is not None:
            claims.append(verified[0])
            valid_until.append(verified[1])
    checks.raise_failures()
    return VerifiedEvidence(
        claims=tuple(claims),
        evidence_digest=bundle.digest,
        now=now,
        valid_until=min(valid_until),
        checks=checks.checks,
        _made_by=_VERIFIED,
    )


def item_labels(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """Names for the items in checks: the kind, numbered from 0 where a kind comes several times."""
    totals, seen = Counter(kinds), Counter[str]()
    labels = []
    for kind in kinds:
        labels.append(kind if totals[kind] == 1 else f"{kind}[{seen[kind]}]")
        seen[kind] += 1
    return tuple(labels)
