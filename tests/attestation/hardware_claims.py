"""Claims as a hardware verifier would make them, and a policy that leaves nothing open.

Appraisal is pure over claims, so it is complete and tested before the
verifiers of these kinds exist. The stage's private token is taken here and
nowhere else.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from attestation.appraise import AppraisalPolicy, derive_gpu_nonce, parse_authored_policy
from attestation.types import (
    Claims,
    GpuClaims,
    SnpClaims,
    SnpGuestPolicy,
    SnpPlatformInfo,
    SnpTcb,
    VerifiedEvidence,
)
from attestation.types.result import _VERIFIED
from tests.attestation.forging import BINDING, MEASUREMENT, NOW, policy_json

TCB = SnpTcb(bootloader=9, tee=0, snp=23, microcode=72)

SNP = SnpClaims(
    version=5,
    product="genoa",
    signing_key="vcek",
    csp_id=None,
    guest_svn=3,
    policy=SnpGuestPolicy(
        abi_major=1,
        abi_minor=55,
        smt=True,
        migrate_ma=False,
        debug=False,
        single_socket=False,
        cxl_allow=False,
        mem_aes_256_xts=False,
        rapl_dis=False,
        ciphertext_hiding_dram=False,
        page_swap_disable=False,
    ),
    platform_info=SnpPlatformInfo(
        smt_en=True,
        tsme_en=False,
        ecc_en=True,
        rapl_dis=False,
        ciphertext_hiding_dram_en=False,
        alias_check_complete=True,
        tio_en=False,
    ),
    family_id=bytes(16),
    image_id=bytes(16),
    vmpl=0,
    author_key_en=False,
    mask_chip_key=False,
    report_data=BINDING,
    measurement=MEASUREMENT,
    host_data=bytes(32),
    id_key_digest=bytes(48),
    author_key_digest=bytes(48),
    report_id=bytes([5]) * 32,
    report_id_ma=bytes([255]) * 32,
    reported_tcb=TCB,
    committed_tcb=TCB,
    launch_tcb=TCB,
    current_tcb=TCB,
    chip_id=bytes([9]) * 64,
    committed_firmware=(1, 55, 40),
    current_firmware=(1, 55, 40),
    launch_mit_vector=3,
    current_mit_vector=3,
    crl_this_update=NOW - timedelta(days=3),
)

GPU = GpuClaims(
    ueid="0a1b",
    chip="gh100",
    nonce=derive_gpu_nonce(BINDING),
    fwid_bound=True,
    driver_version="550.90.07",
    vbios_version="96.00.9F.00.01",
    driver_rim="NV_GPU_DRIVER_GH100_550.90.07",
    vbios_rim="NV_GPU_VBIOS_1010_0200_882_96009F0001",
    measurements_active=28,
    measurements_equal=28,
    cc_mode=True,
    devtools_mode=False,
    ppcie_mode=False,
    debug_enabled=False,
    secure_boot=True,
    ocsp_this_update=NOW - timedelta(hours=2),
    certificate_hold=False,
)


def verified(*claims: Claims) -> VerifiedEvidence:
    return VerifiedEvidence(
        claims=claims,
        evidence_digest="00" * 32,
        now=NOW,
        valid_until=NOW + timedelta(hours=1),
        checks=(),
        _made_by=_VERIFIED,
    )


def tight_policy_json() -> dict[str, Any]:
    """The production policy with a value in the place of every `unconstrained`."""
    value = policy_json("production_snp_h100")
    snp, gpu = value["kinds"]["sev-snp"], value["kinds"]["nvidia-gpu"]
    for name in snp["tcb_floors"]:
        snp["tcb_floors"][name] = {"genoa": {"bootloader": 9, "tee": 0, "snp": 23, "microcode": 72}}
    snp |= {
        "csp_ids": ["cloud one"],
        "launch_mit_vector": 1,
        "current_mit_vector": 3,
        "minimum_guest_svn": 3,
        "host_data": ["00" * 32],
        "family_ids": ["00" * 16],
        "image_ids": ["00" * 16],
        "author_key_en": "off",
        "id_key_digests": ["00" * 48],
        "author_key_digests": ["00" * 48],
        "report_ids": ["05" * 32],
        "report_ids_ma": ["ff" * 32],
        "chip_ids": ["09" * 64, "0a" * 64],
    }
    snp["guest_policy"] |= {
        "minimum_abi_major": 1,
        "minimum_abi_minor": 55,
        "smt": "on",
        "single_socket": "off",
        "mem_aes_256_xts": "off",
        "rapl_dis": "off",
        "ciphertext_hiding_dram": "off",
        "page_swap_disable": "off",
    }
    snp["platform_info"] |= {
        "smt_en": "on",
        "tsme_en": "off",
        "rapl_dis": "off",
        "ciphertext_hiding_dram_en": "off",
        "tio_en": "off",
    }
    gpu |= {"ueids": ["0a1b", "0a1c"], "minimum_vbios_version": "96.00.9f.00.01"}
    return value


def tight_policy() -> AppraisalPolicy:
    return parse_authored_policy(json.dumps(tight_policy_json()).encode())
