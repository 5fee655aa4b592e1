"""From bytes to an attestation result with simulated evidence, and every way not to get one."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from datetime import datetime, timedelta
from typing import Any

import pytest

from attestation.appraise import (
    AppraisalPolicy,
    AttestationResult,
    ReferenceValues,
    appraise_evidence,
    print_verdict,
)
from attestation.errors import EndorsementUnavailable, PolicyRefused
from attestation.types import EvidenceBundle, RawEvidence, VerifiedEvidence
from attestation.verify import verify_evidence
from tests.attestation.forging import (
    BINDING,
    MEASUREMENT,
    NOW,
    Certificate,
    Forger,
    policy,
    reference_values,
)


def appraise(
    bundle: EvidenceBundle,
    forger: Forger,
    *,
    used: AppraisalPolicy | None = None,
    values: ReferenceValues | None = None,
    binding: bytes = BINDING,
    now: datetime = NOW,
) -> AttestationResult:
    verified = verify_evidence(bundle, roots=forger.roots, now=NOW)
    return appraise_evidence(
        verified,
        policy=used or policy(),
        reference_values=values or reference_values(),
        expected_binding=binding,
        now=now,
    )


def test_accepted(forger: Forger) -> None:
    bundle = forger.bundle()
    result = appraise(bundle, forger)
    assert result.kinds == ("simulated",)
    assert result.policy_name == "unsafe-simulated"
    assert result.binding == BINDING
    assert result.evidence_digest == bundle.digest
    assert result.policy_digest == policy().digest
    assert result.reference_values_digest == reference_values().digest
    assert result.now == NOW
    states = {check.name: str(check.state) for check in result.checks}
    assert states["simulated.report_data"] == "verified"
    assert states["simulated.signature"] == "verified"
    assert {name for name, state in states.items() if state == "not_checked"} == {
        "simulated.hardware",
        "simulated.revocation",
        "simulated.age",
    }
    assert "failed" not in states.values()
    assert len(states) == len(result.checks)


def test_verdict_lists_every_check(forger: Forger) -> None:
    result = appraise(forger.bundle(), forger)
    verdict = json.loads(print_verdict(result))
    assert len(verdict["checks"]) == len(result.checks) >= 16
    assert {each["state"] for each in verdict["checks"]} == {"verified", "not_checked"}
    assert verdict["binding"] == BINDING.hex()


@pytest.mark.parametrize(
    ("overrides", "rules", "check", "code"),
    [
        ({"report_data": "00" * 64}, {}, "simulated.report_data", "binding_mismatch"),
        ({"measurement": "00" * 48}, {}, "simulated.measurement", "simulated_measurement"),
        ({"debug": True}, {}, "simulated.debug", "simulated_debug"),
        ({}, {"debug": "on"}, "simulated.debug", "simulated_debug"),
        ({"tcb": 0}, {}, "simulated.tcb", "simulated_tcb"),
        (
            {"issued_at": "2026-12-01T11:58:59Z"},
            {"maximum_age_seconds": 60},
            "simulated.age",
            "simulated_age",
        ),
        (
            {"issued_at": "2026-12-01T12:05:01Z"},
            {"maximum_age_seconds": 60},
            "simulated.age",
            "simulated_age",
        ),
    ],
)
def test_each_rule_fails_exactly(
    forger: Forger, overrides: dict[str, Any], rules: dict[str, Any], check: str, code: str
) -> None:
    with pytest.raises(PolicyRefused) as caught:
        appraise(forger.bundle(**overrides), forger, used=policy(**rules))
    assert caught.value.code == code
    assert caught.value.exit_code == 5
    assert [finding.check for finding in caught.value.findings] == [check]
    states = {each.name: each.state for each in caught.value.checks}
    assert [name for name, state in states.items() if state == "failed"] == [check]


def test_unconstrained_rules_accept_and_say_so(forger: Forger) -> None:
    open_policy = policy(measurement="unconstrained", debug="unconstrained", minimum_tcb=0)
    result = appraise(forger.bundle(debug=True, measurement="aa" * 48), forger, used=open_policy)
    states = {check.name: str(check.state) for check in result.checks}
    assert states["simulated.measurement"] == "not_checked"
    assert states["simulated.debug"] == "not_checked"
    assert states["simulated.report_data"] == "verified"


def test_all_findings_together(forger: Forger) -> None:
    bundle = forger.bundle(report_data="00" * 64, measurement="00" * 48, debug=True, tcb=0)
    with pytest.raises(PolicyRefused) as caught:
        appraise(bundle, forger)
    assert [finding.code for finding in caught.value.findings] == [
        "binding_mismatch",
        "simulated_measurement",
        "simulated_debug",
        "simulated_tcb",
    ]
    measured = caught.value.findings[1]
    assert measured.field == "measurement"
    assert measured.expected == MEASUREMENT.hex()
    assert measured.got == "00" * 48


def test_relayed_evidence_of_another_binding(forger: Forger) -> None:
    for index in range(64):
        other = bytearray(BINDING)
        other[index] ^= 1
        with pytest.raises(PolicyRefused, match="binding_mismatch"):
            appraise(forger.bundle(), forger, binding=bytes(other))


def test_production_policy_refuses_simulated_evidence(forger: Forger) -> None:
    with pytest.raises(PolicyRefused) as caught:
        appraise(forger.bundle(), forger, used=policy("production_snp_h100"))
    assert caught.value.code == "simulated_refused"
    assert [finding.check for finding in caught.value.findings] == [
        "kinds.simulated",
        "kinds.required",
        "nvidia-gpu.count",
    ]


def test_deny_all_refuses_good_evidence(forger: Forger) -> None:
    with pytest.raises(PolicyRefused) as caught:
        appraise(forger.bundle(), forger, used=policy("deny_all"))
    assert caught.value.code == "policy_denies_all"


def test_two_simulated_items_are_refused(forger: Forger) -> None:
    items = tuple(RawEvidence("simulated", forger.payload(tcb=tcb)) for tcb in (1, 2))
    with pytest.raises(PolicyRefused, match="kind_repeated"):
        appraise(EvidenceBundle(items), forger)


def test_second_item_can_not_hide_behind_a_good_one(forger: Forger) -> None:
    items = tuple(RawEvidence("simulated", forger.payload(debug=debug)) for debug in (False, True))
    with pytest.raises(PolicyRefused) as caught:
        appraise(EvidenceBundle(items), forger)
    assert [finding.check for finding in caught.value.findings] == [
        "kinds.repeated",
        "simulated[1].debug",
    ]


def test_time_between_verification_and_appraisal() -> None:
    forger = Forger.new(leaf=Certificate(last=NOW + timedelta(minutes=1)))
    assert appraise(forger.bundle(), forger, now=NOW + timedelta(minutes=1))
    for now in (NOW + timedelta(minutes=2), NOW - timedelta(seconds=1)):
        with pytest.raises(EndorsementUnavailable, match="evidence_out_of_time"):
            appraise(forger.bundle(), forger, now=now)


@pytest.mark.parametrize("binding", [b"", bytes(63), bytes(65)])
def test_binding_of_another_size_is_the_callers_fault(forger: Forger, binding: bytes) -> None:
    with pytest.raises(ValueError, match="64 bytes"):
        appraise(forger.bundle(), forger, binding=binding)


# The stages are types that nobody else can make.


def values_of(instance: Any) -> dict[str, Any]:
    return {each.name: getattr(instance, each.name) for each in dataclasses.fields(instance)}


def test_results_come_from_their_stage_only(forger: Forger) -> None:
    verified = verify_evidence(forger.bundle(), roots=forger.roots, now=NOW)
    result = appraise(forger.bundle(), forger)
    for made in (verified, result):
        with pytest.raises(TypeError, match="made by"):
            type(made)(**values_of(made))
        with pytest.raises(TypeError, match="made by"):
            type(made)(**values_of(made), _made_by=object())
        with pytest.raises(TypeError):
            dataclasses.replace(made, now=NOW)
        for copier in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="copied or pickled"):
                copier(made)
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.now = NOW
        with pytest.raises(TypeError, match="no subclasses"):
            type("Fake", (type(made),), {})


def test_only_verified_evidence_is_appraised(forger: Forger) -> None:
    class Lookalike:
        claims = ()
        checks = ()
        evidence_digest = "00" * 32
        now = NOW
        valid_until = NOW

    for unverified in (forger.bundle(), Lookalike(), None):
        with pytest.raises(TypeError, match="verified"):
            appraise_evidence(
                unverified,  # type: ignore[arg-type]
                policy=policy(),
                reference_values=reference_values(),
                expected_binding=BINDING,
                now=NOW,
            )
    assert VerifiedEvidence.__final__  # type: ignore[attr-defined]
