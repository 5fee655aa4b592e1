"""Appraisal of SEV-SNP and NVIDIA claims: each rule fails exactly, and missing data never passes."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from attestation.appraise import (
    RULES,
    AttestationResult,
    appraise_evidence,
    derive_gpu_nonce,
    parse_authored_policy,
)
from attestation.appraise.rules.comparisons import Context, Unasked
from attestation.errors import PolicyRefused
from attestation.parse.policy.nvidia_gpu_rules import GpuRules
from attestation.parse.policy.sev_snp_rules import SnpGuestPolicyRules, SnpPlatformRules
from attestation.types import Claims, GpuClaims, SnpClaims
from tests.attestation.forging import BINDING, MEASUREMENT, NOW, policy, reference_values
from tests.attestation.hardware_claims import (
    GPU,
    SNP,
    TCB,
    tight_policy,
    tight_policy_json,
    verified,
)

VALUES = reference_values(kind="sev-snp")
PRODUCTION = policy("production_snp_h100")
TIGHT = tight_policy()


def appraise(*claims: Claims, policy: Any = TIGHT) -> AttestationResult:
    return appraise_evidence(
        verified(*claims),
        policy=policy,
        reference_values=VALUES,
        expected_binding=BINDING,
        now=NOW,
    )


def findings(*claims: Claims, policy: Any = TIGHT) -> list[str]:
    with pytest.raises(PolicyRefused) as caught:
        appraise(*claims, policy=policy)
    for finding in caught.value.findings:
        assert finding.field
        assert finding.expected
        assert finding.got
    return [finding.check for finding in caught.value.findings]


@pytest.mark.parametrize("policy_used", [PRODUCTION, TIGHT], ids=["production", "tight"])
def test_right_claims_are_accepted(policy_used: Any) -> None:
    result = appraise(SNP, GPU, policy=policy_used)
    assert result.kinds == ("nvidia-gpu", "sev-snp")
    assert result.binding == BINDING
    assert result.policy_digest == policy_used.digest
    unasked = [check.name for check in result.checks if check.state == "not_checked"]
    if policy_used is TIGHT:
        assert unasked == ["sev-snp.csp_id"]  # a VCEK signed
    else:
        assert "sev-snp.chip_id" in unasked
        assert "sev-snp.guest_policy.debug" not in unasked
        assert "nvidia-gpu.devtools_mode" not in unasked


def guest(**changes: Any) -> SnpClaims:
    return replace(SNP, policy=replace(SNP.policy, **changes))


def platform(**changes: Any) -> SnpClaims:
    return replace(SNP, platform_info=replace(SNP.platform_info, **changes))


LOW = replace(TCB, snp=22)
HIGH = replace(TCB, snp=24)

SNP_BREAKS: dict[str, SnpClaims] = {
    "report_data": replace(SNP, report_data=bytes(64)),
    "measurement": replace(SNP, measurement=bytes(48)),
    "vmpl": replace(SNP, vmpl=1),
    "guest_svn": replace(SNP, guest_svn=2),
    "host_data": replace(SNP, host_data=bytes([1]) * 32),
    "family_id": replace(SNP, family_id=bytes([1]) * 16),
    "image_id": replace(SNP, image_id=bytes([1]) * 16),
    "author_key_en": replace(SNP, author_key_en=True),
    "id_key_digest": replace(SNP, id_key_digest=bytes([1]) * 48),
    "author_key_digest": replace(SNP, author_key_digest=bytes([1]) * 48),
    "report_id": replace(SNP, report_id=bytes(32)),
    "report_id_ma": replace(SNP, report_id_ma=bytes(32)),
    "guest_policy.abi": guest(abi_minor=54),
    "guest_policy.debug": guest(debug=True),
    "guest_policy.migrate_ma": guest(migrate_ma=True),
    "guest_policy.smt": guest(smt=False),
    "guest_policy.single_socket": guest(single_socket=True),
    "guest_policy.cxl_allow": guest(cxl_allow=True),
    "guest_policy.mem_aes_256_xts": guest(mem_aes_256_xts=True),
    "guest_policy.rapl_dis": guest(rapl_dis=True),
    "guest_policy.ciphertext_hiding_dram": guest(ciphertext_hiding_dram=True),
    "guest_policy.page_swap_disable": guest(page_swap_disable=True),
    "version": replace(SNP, version=2),
    "signing_key": replace(SNP, signing_key="vlek", csp_id="cloud one"),
    "mask_chip_key": replace(SNP, mask_chip_key=True),
    "chip_id": replace(SNP, chip_id=bytes([8]) * 64),
    "crl_age": replace(SNP, crl_this_update=NOW - timedelta(days=46)),
    "tcb.order": replace(SNP, launch_tcb=HIGH),
    "tcb.provisional": replace(SNP, current_firmware=(1, 56, 0)),
    "platform_info.alias_check_complete": platform(alias_check_complete=False),
    "platform_info.smt_en": platform(smt_en=False),
    "platform_info.tsme_en": platform(tsme_en=True),
    "platform_info.ecc_en": platform(ecc_en=False),
    "platform_info.rapl_dis": platform(rapl_dis=True),
    "platform_info.ciphertext_hiding_dram_en": platform(ciphertext_hiding_dram_en=True),
    "platform_info.tio_en": platform(tio_en=True),
    "launch_mit_vector": replace(SNP, launch_mit_vector=2),
    "current_mit_vector": replace(SNP, current_mit_vector=1),
    "tcb.reported": replace(SNP, reported_tcb=LOW),
    "tcb.launch": replace(SNP, launch_tcb=LOW),
}

SNP_BREAKS_SEVERAL: dict[str, tuple[SnpClaims, set[str]]] = {
    "product": (
        replace(SNP, product="milan"),
        {"product", "tcb.reported", "tcb.committed", "tcb.launch", "tcb.current"},
    ),
    "csp_id": (replace(SNP, signing_key="vlek", csp_id="cloud two"), {"signing_key", "csp_id"}),
    "mask_chip_id": (replace(SNP, chip_id=bytes(64)), {"mask_chip_id", "chip_id"}),
    "revocation": (replace(SNP, crl_this_update=None), {"revocation", "crl_age"}),
    "tcb.committed": (
        replace(SNP, committed_tcb=LOW, reported_tcb=LOW),
        {"tcb.reported", "tcb.committed", "tcb.provisional"},
    ),
    "tcb.current": (
        replace(SNP, current_tcb=LOW, committed_tcb=LOW, reported_tcb=LOW, launch_tcb=LOW),
        {"tcb.reported", "tcb.committed", "tcb.launch", "tcb.current"},
    ),
}

GPU_BREAKS: dict[str, GpuClaims] = {
    "nonce": replace(GPU, nonce=bytes(32)),
    "cc_mode": replace(GPU, cc_mode=False),
    "devtools_mode": replace(GPU, devtools_mode=True),
    "ppcie_mode": replace(GPU, ppcie_mode=True),
    "debug": replace(GPU, debug_enabled=True),
    "secure_boot": replace(GPU, secure_boot=False),
    "chip": replace(GPU, chip="gb100"),
    "ueid": replace(GPU, ueid="ffff"),
    "fwid": replace(GPU, fwid_bound=False),
    "driver_rim": replace(GPU, driver_rim=None),
    "vbios_rim": replace(GPU, vbios_rim=None),
    "measurements": replace(GPU, measurements_equal=27),
    "driver_version": replace(GPU, driver_version="550.54.14"),
    "vbios_version": replace(GPU, vbios_version="96.00.9E.FF.FF"),
    "ocsp_age": replace(GPU, ocsp_this_update=NOW - timedelta(days=8)),
    "certificate_hold": replace(GPU, certificate_hold=True),
}

GPU_BREAKS_SEVERAL: dict[str, tuple[GpuClaims, set[str]]] = {
    "ocsp": (replace(GPU, ocsp_this_update=None), {"ocsp", "ocsp_age"}),
}


@pytest.mark.parametrize("rule", sorted(SNP_BREAKS))
def test_each_snp_rule_fails_exactly(rule: str) -> None:
    assert findings(SNP_BREAKS[rule], GPU) == [f"sev-snp.{rule}"]


@pytest.mark.parametrize("rule", sorted(SNP_BREAKS_SEVERAL))
def test_dependent_snp_rules_fail_together(rule: str) -> None:
    claims, expected = SNP_BREAKS_SEVERAL[rule]
    assert set(findings(claims, GPU)) == {f"sev-snp.{name}" for name in expected}


@pytest.mark.parametrize("rule", sorted(GPU_BREAKS))
def test_each_gpu_rule_fails_exactly(rule: str) -> None:
    assert findings(SNP, GPU_BREAKS[rule]) == [f"nvidia-gpu.{rule}"]


@pytest.mark.parametrize("rule", sorted(GPU_BREAKS_SEVERAL))
def test_dependent_gpu_rules_fail_together(rule: str) -> None:
    claims, expected = GPU_BREAKS_SEVERAL[rule]
    assert set(findings(SNP, claims)) == {f"nvidia-gpu.{name}" for name in expected}


def test_every_rule_has_a_break() -> None:
    assert {rule.name for rule in RULES["sev-snp"]} == set(SNP_BREAKS) | set(SNP_BREAKS_SEVERAL)
    assert {rule.name for rule in RULES["nvidia-gpu"]} == set(GPU_BREAKS) | set(GPU_BREAKS_SEVERAL)
    for rules in RULES.values():
        assert len({rule.name for rule in rules}) == len(rules)


def test_every_flag_of_the_policy_format_has_a_rule() -> None:
    names = {rule.name for rule in RULES["sev-snp"]}
    for each in fields(SnpGuestPolicyRules):
        assert each.name.startswith("minimum_abi") or f"guest_policy.{each.name}" in names
    for each in fields(SnpPlatformRules):
        assert f"platform_info.{each.name}" in names
    gpu = {rule.name for rule in RULES["nvidia-gpu"]}
    for each in fields(GpuRules):
        if each.type == "Switch":
            assert each.name in gpu


@pytest.mark.parametrize(
    ("claims", "check"),
    [
        (replace(SNP, launch_mit_vector=None), "sev-snp.launch_mit_vector"),
        (replace(SNP, current_mit_vector=None), "sev-snp.current_mit_vector"),
        (replace(GPU, secure_boot=None), "nvidia-gpu.secure_boot"),
        (replace(GPU, debug_enabled=None), "nvidia-gpu.debug"),
        (replace(GPU, certificate_hold=None), "nvidia-gpu.certificate_hold"),
        (
            replace(GPU, measurements_active=0, measurements_equal=0),
            "nvidia-gpu.measurements",
        ),
        (replace(GPU, driver_version=""), "nvidia-gpu.driver_version"),
        (replace(GPU, driver_version="newest"), "nvidia-gpu.driver_version"),
        (replace(GPU, driver_version="999.A.0"), "nvidia-gpu.driver_version"),
        (replace(GPU, driver_version="+999.0.0"), "nvidia-gpu.driver_version"),
        (replace(GPU, vbios_version="96.00.9F.00_1.01"), "nvidia-gpu.vbios_version"),
    ],
)
def test_missing_data_resolves_to_refusal(claims: Claims, check: str) -> None:
    both = (claims, GPU) if isinstance(claims, SnpClaims) else (SNP, claims)
    assert findings(*both) == [check]


def test_future_endorsements_are_refused() -> None:
    ahead = NOW + timedelta(minutes=6)
    assert findings(replace(SNP, crl_this_update=ahead), GPU) == ["sev-snp.crl_age"]
    assert findings(SNP, replace(GPU, ocsp_this_update=ahead)) == ["nvidia-gpu.ocsp_age"]


def test_turin_needs_its_fmc() -> None:
    value = tight_policy_json()
    rules = value["kinds"]["sev-snp"]
    rules["products"] = ["turin"]
    floor = {"bootloader": 1, "tee": 0, "snp": 1, "microcode": 1, "fmc": 2}
    rules["tcb_floors"] = {name: {"turin": floor} for name in rules["tcb_floors"]}
    turin = parse_authored_policy(json.dumps(value).encode())
    with_fmc = replace(TCB, fmc=2)

    def claims(tcb: Any) -> SnpClaims:
        return replace(
            SNP,
            product="turin",
            reported_tcb=tcb,
            committed_tcb=tcb,
            launch_tcb=tcb,
            current_tcb=tcb,
        )

    assert appraise(claims(with_fmc), GPU, policy=turin)
    expected = [f"sev-snp.tcb.{name}" for name in ("reported", "committed", "launch", "current")]
    assert findings(claims(replace(TCB, fmc=1)), GPU, policy=turin) == expected
    assert findings(claims(TCB), GPU, policy=turin) == expected
    mixed = replace(claims(with_fmc), launch_tcb=TCB)
    assert "sev-snp.tcb.order" in findings(mixed, GPU, policy=turin)


def test_abi_of_a_newer_major_needs_no_minor() -> None:
    assert appraise(guest(abi_major=2, abi_minor=0), GPU)
    assert findings(guest(abi_major=0, abi_minor=99), GPU) == ["sev-snp.guest_policy.abi"]


# Kinds.


def test_findings_of_all_kinds_are_reported_together() -> None:
    snp = replace(SNP_BREAKS["vmpl"], host_data=bytes([1]) * 32)
    assert findings(snp, GPU_BREAKS["cc_mode"]) == [
        "sev-snp.vmpl",
        "sev-snp.host_data",
        "nvidia-gpu.cc_mode",
    ]


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ((SNP,), "kind_missing"),
        ((GPU,), "kind_missing"),
        ((), "kind_missing"),
        ((SNP, SNP, GPU), "kind_repeated"),
        ((SNP, GPU, GPU), "nvidia_gpu_count"),
        ((SNP, GPU, replace(GPU, ueid="0a1c")), "nvidia_gpu_count"),
    ],
)
def test_kinds(claims: tuple[Claims, ...], code: str) -> None:
    with pytest.raises(PolicyRefused) as caught:
        appraise(*claims)
    assert caught.value.code == code


def two_gpus() -> Any:
    value = tight_policy_json()
    value["kinds"]["nvidia-gpu"]["count"] = 2
    return parse_authored_policy(json.dumps(value).encode())


def test_several_gpus_are_several_devices() -> None:
    other = replace(GPU, ueid="0a1c")
    result = appraise(SNP, GPU, other, policy=two_gpus())
    assert "nvidia-gpu[1].cc_mode" in {check.name for check in result.checks}
    assert findings(SNP, GPU, GPU, policy=two_gpus()) == ["nvidia-gpu.distinct"]
    broken = replace(other, devtools_mode=True)
    assert findings(SNP, GPU, broken, policy=two_gpus()) == ["nvidia-gpu[1].devtools_mode"]


def test_a_kind_that_the_policy_does_not_list() -> None:
    value = tight_policy_json()
    del value["kinds"]["nvidia-gpu"]
    snp_only = parse_authored_policy(json.dumps(value).encode())
    assert appraise(SNP, policy=snp_only)
    assert findings(SNP, GPU, policy=snp_only) == ["kinds.unlisted"]


def test_no_reference_values_of_the_kind() -> None:
    with pytest.raises(PolicyRefused) as caught:
        appraise_evidence(
            verified(SNP, GPU),
            policy=TIGHT,
            reference_values=reference_values(MEASUREMENT, kind="simulated"),
            expected_binding=BINDING,
            now=NOW,
        )
    assert [finding.code for finding in caught.value.findings] == ["sev_snp_measurement"]


def test_gpu_of_another_binding() -> None:
    other = replace(GPU, nonce=derive_gpu_nonce(bytes(64)))
    with pytest.raises(PolicyRefused, match="gpu_nonce_mismatch"):
        appraise(SNP, other)


def test_unconstrained_is_never_counted_as_verified() -> None:
    context = Context(BINDING, derive_gpu_nonce(BINDING), NOW, {MEASUREMENT.hex(): "x"})
    for kind, rules, claims in (
        ("sev-snp", PRODUCTION.sev_snp, SNP),
        ("nvidia-gpu", PRODUCTION.nvidia_gpu, GPU),
    ):
        result = {check.name: check.state for check in appraise(SNP, GPU, policy=PRODUCTION).checks}
        for rule in RULES[kind]:
            unasked = isinstance(rule.apply(rules, claims, context), Unasked)
            assert result[f"{kind}.{rule.name}"] == ("not_checked" if unasked else "verified")
