"""Claims: what verified evidence says about its attester, one type a kind.

Names are those of the vendors' specifications. A value that the evidence does
not carry is `None`, and every rule that constrains it then fails.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from attestation.types.evidence import NVIDIA_GPU, SEV_SNP, SIMULATED


@dataclass(frozen=True, slots=True)
class SimulatedClaims:
    """Claims of a simulated attester: true of nothing but the bytes."""

    kind: ClassVar[str] = SIMULATED

    report_data: bytes
    """64 bytes."""
    measurement: bytes
    """48 bytes."""
    debug: bool
    tcb: int
    issued_at: datetime
    root_sha256: str
    """SHA-256 of the DER of the injected root that the leaf chains to."""


@dataclass(frozen=True, slots=True)
class SnpTcb:
    """TCB_VERSION: security patch levels. `fmc` exists from Turin on."""

    bootloader: int
    tee: int
    snp: int
    microcode: int
    fmc: int | None = None


@dataclass(frozen=True, slots=True)
class SnpGuestPolicy:
    """POLICY bits of the guest (SEV-SNP ABI, guest policy structure)."""

    abi_major: int
    abi_minor: int
    smt: bool
    migrate_ma: bool
    debug: bool
    single_socket: bool
    cxl_allow: bool
    mem_aes_256_xts: bool
    rapl_dis: bool
    ciphertext_hiding_dram: bool
    page_swap_disable: bool


@dataclass(frozen=True, slots=True)
class SnpPlatformInfo:
    """PLATFORM_INFO bits."""

    smt_en: bool
    tsme_en: bool
    ecc_en: bool
    rapl_dis: bool
    ciphertext_hiding_dram_en: bool
    alias_check_complete: bool
    tio_en: bool


@dataclass(frozen=True, slots=True)
class SnpClaims:
    """Claims of a verified ATTESTATION_REPORT (SEV-SNP ABI, versions 2 to 5)."""

    kind: ClassVar[str] = SEV_SNP

    version: int
    product: str
    """`milan`, `genoa` or `turin`."""
    signing_key: str
    """`vcek` or `vlek`."""
    csp_id: str | None
    """Of the VLEK certificate."""
    guest_svn: int
    policy: SnpGuestPolicy
    platform_info: SnpPlatformInfo
    family_id: bytes
    image_id: bytes
    vmpl: int
    author_key_en: bool
    mask_chip_key: bool
    report_data: bytes
    measurement: bytes
    host_data: bytes
    id_key_digest: bytes
    author_key_digest: bytes
    report_id: bytes
    report_id_ma: bytes
    reported_tcb: SnpTcb
    committed_tcb: SnpTcb
    launch_tcb: SnpTcb
    current_tcb: SnpTcb
    chip_id: bytes
    """64 bytes; all zero where the host masks it."""
    committed_firmware: tuple[int, int, int]
    """Major, minor, build."""
    current_firmware: tuple[int, int, int]
    launch_mit_vector: int | None
    """Version 5 only."""
    current_mit_vector: int | None
    crl_this_update: datetime | None
    """Of the ARK's list that was checked; `None` where none was."""


@dataclass(frozen=True, slots=True)
class GpuClaims:
    """Claims of one verified NVIDIA GPU: SPDM report, device chain, RIMs and OCSP."""

    kind: ClassVar[str] = NVIDIA_GPU

    ueid: str
    """Unique per device: lower hex of the device certificate's serial number."""
    chip: str
    """From the device identity chain, for example `gh100`."""
    nonce: bytes
    """32 bytes, of the SPDM request."""
    fwid_bound: bool
    """The FWID of the device certificate equals that of the report."""
    driver_version: str
    vbios_version: str
    driver_rim: str | None
    """Id of the signed RIM that was compared; `None` where none was."""
    vbios_rim: str | None
    measurements_active: int
    """Golden indices that the RIMs mark active."""
    measurements_equal: int
    """Those of them that were compared and are equal."""
    cc_mode: bool
    devtools_mode: bool
    ppcie_mode: bool
    debug_enabled: bool | None
    secure_boot: bool | None
    ocsp_this_update: datetime | None
    """The oldest of the responses for the chain; `None` where one is missing."""
    certificate_hold: bool | None
    """Some certificate is on hold; `None` where OCSP was not checked."""


Claims = SimulatedClaims | SnpClaims | GpuClaims
