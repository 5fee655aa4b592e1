"""Rules of AMD SEV-SNP, in the order in which they are reported. Field names: SEV-SNP ABI."""

from __future__ import annotations

from attestation.appraise.rules.comparisons import (
    Holds,
    Outcome,
    Rule,
    Unasked,
    age,
    bits,
    demand,
    equal_bytes,
    floor,
    listed,
    listed_number,
    measurement,
    switch,
)
from attestation.appraise.rules.sev_snp_tcb import TCB_RULES
from attestation.parse.fields import UNCONSTRAINED
from attestation.parse.policy.sev_snp_rules import SnpRules
from attestation.types.claims import SnpClaims

_Rule = Rule[SnpRules, SnpClaims]


def _abi_floor(rules: SnpRules, claims: SnpClaims) -> Outcome:
    """The guest's required firmware ABI: the minor counts where the major is the minimum."""
    wanted, got = rules.guest_policy, claims.policy
    major = floor(wanted.minimum_abi_major, got.abi_major)
    if not isinstance(major, Holds) or wanted.minimum_abi_minor == UNCONSTRAINED:
        return major
    if got.abi_major != wanted.minimum_abi_major:
        return Holds()
    return floor(wanted.minimum_abi_minor, got.abi_minor)


def _csp(rules: SnpRules, claims: SnpClaims) -> Outcome:
    if claims.signing_key != "vlek":
        return Unasked()
    return listed(rules.csp_ids, claims.csp_id)


def _guest_policy_flag(name: str) -> _Rule:
    return Rule(
        f"guest_policy.{name}",
        f"POLICY.{name.upper()}",
        lambda rules, claims, _context: switch(
            getattr(rules.guest_policy, name), getattr(claims.policy, name)
        ),
    )


def _platform_flag(name: str) -> _Rule:
    return Rule(
        f"platform_info.{name}",
        f"PLATFORM_INFO.{name.upper()}",
        lambda rules, claims, _context: switch(
            getattr(rules.platform_info, name), getattr(claims.platform_info, name)
        ),
    )


IDENTITY_RULES: tuple[_Rule, ...] = (
    Rule(
        "report_data",
        "REPORT_DATA",
        lambda _rules, claims, context: equal_bytes(context.binding, claims.report_data),
        code="binding_mismatch",
    ),
    Rule(
        "measurement",
        "MEASUREMENT",
        lambda rules, claims, context: measurement(rules.measurement, claims.measurement, context),
    ),
    Rule("vmpl", "VMPL", lambda rules, claims, _: listed_number(rules.vmpl, claims.vmpl)),
    Rule("guest_svn", "GUEST_SVN", lambda r, c, _: floor(r.minimum_guest_svn, c.guest_svn)),
    Rule("host_data", "HOST_DATA", lambda r, c, _: listed(r.host_data, c.host_data.hex())),
    Rule("family_id", "FAMILY_ID", lambda r, c, _: listed(r.family_ids, c.family_id.hex())),
    Rule("image_id", "IMAGE_ID", lambda r, c, _: listed(r.image_ids, c.image_id.hex())),
    Rule(
        "author_key_en", "AUTHOR_KEY_EN", lambda r, c, _: switch(r.author_key_en, c.author_key_en)
    ),
    Rule(
        "id_key_digest",
        "ID_KEY_DIGEST",
        lambda r, c, _: listed(r.id_key_digests, c.id_key_digest.hex()),
    ),
    Rule(
        "author_key_digest",
        "AUTHOR_KEY_DIGEST",
        lambda r, c, _: listed(r.author_key_digests, c.author_key_digest.hex()),
    ),
    Rule("report_id", "REPORT_ID", lambda r, c, _: listed(r.report_ids, c.report_id.hex())),
    Rule(
        "report_id_ma",
        "REPORT_ID_MA",
        lambda r, c, _: listed(r.report_ids_ma, c.report_id_ma.hex()),
    ),
)

CHIP_RULES: tuple[_Rule, ...] = (
    Rule("version", "VERSION", lambda r, c, _: listed_number(r.versions, c.version)),
    Rule("product", "CPUID", lambda r, c, _: listed(r.products, c.product)),
    Rule("signing_key", "SIGNING_KEY", lambda r, c, _: listed(r.signing_keys, c.signing_key)),
    Rule("csp_id", "CSP_ID", lambda r, c, _: _csp(r, c)),
    Rule(
        "mask_chip_key", "MASK_CHIP_KEY", lambda r, c, _: switch(r.mask_chip_key, c.mask_chip_key)
    ),
    Rule("mask_chip_id", "CHIP_ID", lambda r, c, _: switch(r.mask_chip_id, not any(c.chip_id))),
    Rule("chip_id", "CHIP_ID", lambda r, c, _: listed(r.chip_ids, c.chip_id.hex())),
    Rule(
        "revocation",
        "CRL",
        lambda r, c, _: demand(
            r.revocation, c.crl_this_update is not None, "a checked revocation list", "none"
        ),
    ),
    Rule(
        "crl_age",
        "CRL.thisUpdate",
        lambda r, c, context: age(r.crl_maximum_age_seconds, c.crl_this_update, context.now),
    ),
)

GUEST_POLICY_RULES: tuple[_Rule, ...] = (
    Rule("guest_policy.abi", "POLICY.ABI", lambda r, c, _: _abi_floor(r, c)),
    _guest_policy_flag("debug"),
    _guest_policy_flag("migrate_ma"),
    _guest_policy_flag("smt"),
    _guest_policy_flag("single_socket"),
    _guest_policy_flag("cxl_allow"),
    _guest_policy_flag("mem_aes_256_xts"),
    _guest_policy_flag("rapl_dis"),
    _guest_policy_flag("ciphertext_hiding_dram"),
    _guest_policy_flag("page_swap_disable"),
)

PLATFORM_RULES: tuple[_Rule, ...] = (
    _platform_flag("alias_check_complete"),
    _platform_flag("smt_en"),
    _platform_flag("tsme_en"),
    _platform_flag("ecc_en"),
    _platform_flag("rapl_dis"),
    _platform_flag("ciphertext_hiding_dram_en"),
    _platform_flag("tio_en"),
    Rule(
        "launch_mit_vector",
        "LAUNCH_MIT_VECTOR",
        lambda r, c, _: bits(r.launch_mit_vector, c.launch_mit_vector),
    ),
    Rule(
        "current_mit_vector",
        "CURRENT_MIT_VECTOR",
        lambda r, c, _: bits(r.current_mit_vector, c.current_mit_vector),
    ),
)

SEV_SNP_RULES: tuple[_Rule, ...] = (
    *IDENTITY_RULES,
    *GUEST_POLICY_RULES,
    *CHIP_RULES,
    *TCB_RULES,
    *PLATFORM_RULES,
)
