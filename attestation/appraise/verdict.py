"""The canonical JSON verdict of an appraisal: every check with its state."""

from __future__ import annotations

import rfc8785

from attestation.parse.times import print_time
from attestation.types.result import AttestationResult

VERDICT_TYPE = "https://w3id.org/double-blind/attestation-verdict/v1"


def print_verdict(result: AttestationResult) -> bytes:
    """RFC 8785 bytes. What is `not_checked` in it does not count as passed."""
    return rfc8785.dumps(
        {
            "type": VERDICT_TYPE,
            "policy_name": result.policy_name,
            "kinds": list(result.kinds),
            "binding": result.binding.hex(),
            "evidence": result.evidence_digest,
            "policy": result.policy_digest,
            "reference_values": result.reference_values_digest,
            "now": print_time(result.now),
            "checks": [{"name": each.name, "state": str(each.state)} for each in result.checks],
        }
    )
