"""Rules of NVIDIA GPUs, in the order in which they are reported."""

from __future__ import annotations

import re

from attestation.appraise.rules.comparisons import (
    Differs,
    Holds,
    Outcome,
    Rule,
    Unasked,
    age,
    demand,
    equal_bytes,
    listed,
    switch,
)
from attestation.parse.fields import UNCONSTRAINED, Unconstrained
from attestation.parse.policy.nvidia_gpu_rules import GpuRules
from attestation.types.claims import GpuClaims

_Rule = Rule[GpuRules, GpuClaims]
# int() alone would also read signs, spaces and underscores.
_VERSION = re.compile(r"[0-9A-Fa-f]{1,8}(\.[0-9A-Fa-f]{1,8}){0,7}\Z")
_DECIMAL = re.compile(r"[0-9.]+\Z")


def version_floor(rule: str | Unconstrained, got: str, *, base: int) -> Outcome:
    """A dotted version against its minimum, group by group; `base` is that of the groups."""
    if rule == UNCONSTRAINED:
        return Unasked()
    if _VERSION.match(got) is None or (base == 10 and _DECIMAL.match(got) is None):
        return Differs(f"at least {rule}", got[:40] or "no version")
    lowest = [int(group, base) for group in rule.split(".")]
    actual = [int(group, base) for group in got.split(".")]
    return Holds() if actual >= lowest else Differs(f"at least {rule}", got)


def _rim(required: bool, got: str | None) -> Outcome:
    return demand(required, got is not None, "compared with a signed RIM", "no RIM")


def _measurements(rules: GpuRules, claims: GpuClaims) -> Outcome:
    # With no active index nothing was compared at all.
    holds = 0 < claims.measurements_active == claims.measurements_equal
    return demand(
        rules.measurements,
        holds,
        "every active golden measurement equal, at least one",
        f"{claims.measurements_equal} of {claims.measurements_active}",
    )


NVIDIA_GPU_RULES: tuple[_Rule, ...] = (
    Rule(
        "nonce",
        "SPDM.nonce",
        lambda _rules, claims, context: equal_bytes(context.gpu_nonce, claims.nonce),
        code="gpu_nonce_mismatch",
    ),
    Rule("cc_mode", "CC mode", lambda r, c, _: switch(r.cc_mode, c.cc_mode)),
    Rule(
        "devtools_mode", "devtools mode", lambda r, c, _: switch(r.devtools_mode, c.devtools_mode)
    ),
    Rule("ppcie_mode", "PPCIE mode", lambda r, c, _: switch(r.ppcie_mode, c.ppcie_mode)),
    Rule("debug", "debug status", lambda r, c, _: switch(r.debug, c.debug_enabled)),
    Rule("secure_boot", "secure boot", lambda r, c, _: switch(r.secure_boot, c.secure_boot)),
    Rule("chip", "chip", lambda r, c, _: listed(r.chips, c.chip)),
    Rule("ueid", "UEID", lambda r, c, _: listed(r.ueids, c.ueid)),
    Rule(
        "fwid",
        "FWID",
        lambda r, c, _: demand(
            r.fwid_bound, c.fwid_bound, "equal in certificate and report", "not equal or absent"
        ),
    ),
    Rule("driver_rim", "driver RIM", lambda r, c, _: _rim(r.driver_rim, c.driver_rim)),
    Rule("vbios_rim", "VBIOS RIM", lambda r, c, _: _rim(r.vbios_rim, c.vbios_rim)),
    Rule("measurements", "measurements", lambda r, c, _: _measurements(r, c)),
    Rule(
        "driver_version",
        "driver version",
        lambda r, c, _: version_floor(r.minimum_driver_version, c.driver_version, base=10),
    ),
    Rule(
        "vbios_version",
        "VBIOS version",
        lambda r, c, _: version_floor(r.minimum_vbios_version, c.vbios_version, base=16),
    ),
    Rule(
        "ocsp",
        "OCSP",
        lambda r, c, _: demand(
            r.ocsp, c.ocsp_this_update is not None, "a response for every certificate", "missing"
        ),
    ),
    Rule(
        "ocsp_age",
        "OCSP.thisUpdate",
        lambda r, c, context: age(r.ocsp_maximum_age_seconds, c.ocsp_this_update, context.now),
    ),
    Rule(
        "certificate_hold",
        "OCSP.certificateHold",
        lambda r, c, _: switch(r.certificate_hold, c.certificate_hold),
    ),
)
