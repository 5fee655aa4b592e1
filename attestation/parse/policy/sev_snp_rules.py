"""Rules for AMD SEV-SNP evidence. Names are those of the SEV-SNP ABI specification."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attestation.parse.fields import UNCONSTRAINED, Fields, Switch, Unconstrained
from attestation.types.claims import SnpTcb

PRODUCTS = ("genoa", "milan", "turin")
TCB_NAMES = ("reported", "committed", "launch", "current")
FIRST_PRODUCT_WITH_FMC = "turin"
_YEAR = 366 * 86400
_CSP_ID = re.compile(r"[!-~]([ -~]{0,62}[!-~])?\Z")

TcbFloors = Mapping[str, SnpTcb] | Unconstrained
"""Lowest security patch levels by product."""


@dataclass(frozen=True, slots=True)
class SnpGuestPolicyRules:
    """Rules for the guest's POLICY bits: `off` is a ceiling, `on` a demand."""

    minimum_abi_major: int | Unconstrained
    minimum_abi_minor: int | Unconstrained
    """Compared where the major version is the minimum itself."""
    smt: Switch
    migrate_ma: Switch
    debug: Switch
    single_socket: Switch
    cxl_allow: Switch
    mem_aes_256_xts: Switch
    rapl_dis: Switch
    ciphertext_hiding_dram: Switch
    page_swap_disable: Switch


@dataclass(frozen=True, slots=True)
class SnpPlatformRules:
    """Rules for PLATFORM_INFO bits."""

    smt_en: Switch
    tsme_en: Switch
    ecc_en: Switch
    rapl_dis: Switch
    ciphertext_hiding_dram_en: Switch
    alias_check_complete: Switch
    tio_en: Switch


@dataclass(frozen=True, slots=True)
class SnpRules:
    """What a verified ATTESTATION_REPORT must claim; REPORT_DATA is always compared."""

    versions: tuple[int, ...]
    products: tuple[str, ...]
    signing_keys: tuple[str, ...]
    csp_ids: tuple[str, ...] | Unconstrained
    """Compared where a VLEK signed."""
    revocation: bool
    """True: the ARK's list was checked."""
    crl_maximum_age_seconds: int | Unconstrained
    tcb_floors: Mapping[str, TcbFloors]
    """One entry for each of `TCB_NAMES`."""
    tcb_order: bool
    """True: reported ≤ committed ≤ current and launch ≤ current, by component."""
    provisional_firmware: Switch
    """Whether current firmware may run ahead of what is committed."""
    guest_policy: SnpGuestPolicyRules
    platform_info: SnpPlatformRules
    launch_mit_vector: int | Unconstrained
    """Bits that must be set (report version 5)."""
    current_mit_vector: int | Unconstrained
    vmpl: tuple[int, ...]
    minimum_guest_svn: int | Unconstrained
    measurement: bool
    """True: one of the reference values. False: unconstrained."""
    host_data: tuple[str, ...] | Unconstrained
    family_ids: tuple[str, ...] | Unconstrained
    image_ids: tuple[str, ...] | Unconstrained
    author_key_en: Switch
    id_key_digests: tuple[str, ...] | Unconstrained
    author_key_digests: tuple[str, ...] | Unconstrained
    report_ids: tuple[str, ...] | Unconstrained
    report_ids_ma: tuple[str, ...] | Unconstrained
    mask_chip_key: Switch
    mask_chip_id: Switch
    """An all-zero CHIP_ID means masked; nothing else does."""
    chip_ids: tuple[str, ...] | Unconstrained


def parse_sev_snp_rules(fields: Fields) -> SnpRules:
    """Read the closed object."""
    products = fields.choice("products", *PRODUCTS)
    floors = fields.object("tcb_floors")
    rules = SnpRules(
        versions=fields.integers("versions", 2, 5),
        products=products,
        signing_keys=fields.choice("signing_keys", "vcek", "vlek"),
        csp_ids=fields.names("csp_ids", _CSP_ID),
        revocation=fields.demand("revocation", "required"),
        crl_maximum_age_seconds=fields.bound("crl_maximum_age_seconds", 1, _YEAR),
        tcb_floors=MappingProxyType(
            {name: _parse_floors(floors, name, products) for name in TCB_NAMES}
        ),
        tcb_order=fields.demand("tcb_order", "required"),
        provisional_firmware=fields.switch("provisional_firmware"),
        guest_policy=_parse_guest_policy(fields.object("guest_policy")),
        platform_info=_parse_platform(fields.object("platform_info")),
        launch_mit_vector=fields.bound("launch_mit_vector", 0, 2**53 - 1),
        current_mit_vector=fields.bound("current_mit_vector", 0, 2**53 - 1),
        vmpl=fields.integers("vmpl", 0, 3),
        minimum_guest_svn=fields.bound("minimum_guest_svn", 0, 2**32 - 1),
        measurement=fields.demand("measurement", "reference_values"),
        host_data=fields.digests("host_data", 32),
        family_ids=fields.digests("family_ids", 16),
        image_ids=fields.digests("image_ids", 16),
        author_key_en=fields.switch("author_key_en"),
        id_key_digests=fields.digests("id_key_digests", 48),
        author_key_digests=fields.digests("author_key_digests", 48),
        report_ids=fields.digests("report_ids", 32),
        report_ids_ma=fields.digests("report_ids_ma", 32),
        mask_chip_key=fields.switch("mask_chip_key"),
        mask_chip_id=fields.switch("mask_chip_id"),
        chip_ids=fields.digests("chip_ids", 64),
    )
    floors.done()
    fields.done()
    return rules


def _parse_floors(fields: Fields, name: str, products: tuple[str, ...]) -> TcbFloors:
    """Floors for every product of the policy and for no other, or `unconstrained`."""
    if fields.is_unconstrained(name):
        return UNCONSTRAINED
    by_product = fields.object(name)
    floors = {product: _parse_tcb(by_product.object(product), product) for product in products}
    by_product.done()
    return MappingProxyType(floors)


def _parse_tcb(fields: Fields, product: str) -> SnpTcb:
    with_fmc = product == FIRST_PRODUCT_WITH_FMC
    tcb = SnpTcb(
        bootloader=fields.integer("bootloader", 0, 255),
        tee=fields.integer("tee", 0, 255),
        snp=fields.integer("snp", 0, 255),
        microcode=fields.integer("microcode", 0, 255),
        fmc=fields.integer("fmc", 0, 255) if with_fmc else None,
    )
    fields.done()
    return tcb


def _parse_guest_policy(fields: Fields) -> SnpGuestPolicyRules:
    rules = SnpGuestPolicyRules(
        minimum_abi_major=fields.bound("minimum_abi_major", 0, 255),
        minimum_abi_minor=fields.bound("minimum_abi_minor", 0, 255),
        smt=fields.switch("smt"),
        migrate_ma=fields.switch("migrate_ma"),
        debug=fields.switch("debug"),
        single_socket=fields.switch("single_socket"),
        cxl_allow=fields.switch("cxl_allow"),
        mem_aes_256_xts=fields.switch("mem_aes_256_xts"),
        rapl_dis=fields.switch("rapl_dis"),
        ciphertext_hiding_dram=fields.switch("ciphertext_hiding_dram"),
        page_swap_disable=fields.switch("page_swap_disable"),
    )
    fields.done()
    return rules


def _parse_platform(fields: Fields) -> SnpPlatformRules:
    rules = SnpPlatformRules(
        smt_en=fields.switch("smt_en"),
        tsme_en=fields.switch("tsme_en"),
        ecc_en=fields.switch("ecc_en"),
        rapl_dis=fields.switch("rapl_dis"),
        ciphertext_hiding_dram_en=fields.switch("ciphertext_hiding_dram_en"),
        alias_check_complete=fields.switch("alias_check_complete"),
        tio_en=fields.switch("tio_en"),
    )
    fields.done()
    return rules
