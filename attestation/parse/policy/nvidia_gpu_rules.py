"""Rules for NVIDIA GPU evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attestation.parse.fields import Fields, Switch, Unconstrained

_YEAR = 366 * 86400
_DRIVER = re.compile(r"[0-9]{1,5}(\.[0-9]{1,5}){1,3}\Z")
_CHIP = re.compile(r"[a-z]{2}[0-9a-z]{2,8}\Z")
_UEID = re.compile(r"[0-9a-f]{2,64}\Z")
_VBIOS = re.compile(r"[0-9a-f]{2}(\.[0-9a-f]{2}){4}\Z")


@dataclass(frozen=True, slots=True)
class GpuRules:
    """What each GPU must claim, and how many there are.

    The nonce is always compared with the one derived from the binding, and two
    items of one device are always refused.
    """

    count: int
    """Exactly so many GPUs."""
    chips: tuple[str, ...] | Unconstrained
    ueids: tuple[str, ...] | Unconstrained
    fwid_bound: bool
    driver_rim: bool
    vbios_rim: bool
    measurements: bool
    """True: every active golden index compared and equal."""
    minimum_driver_version: str | Unconstrained
    minimum_vbios_version: str | Unconstrained
    ocsp: bool
    ocsp_maximum_age_seconds: int | Unconstrained
    certificate_hold: Switch
    cc_mode: Switch
    devtools_mode: Switch
    ppcie_mode: Switch
    debug: Switch
    secure_boot: Switch


def parse_nvidia_gpu_rules(fields: Fields) -> GpuRules:
    """Read the closed object."""
    rules = GpuRules(
        count=fields.integer("count", 1, 16),
        chips=fields.names("chips", _CHIP),
        ueids=fields.names("ueids", _UEID),
        fwid_bound=fields.demand("fwid_bound", "required"),
        driver_rim=fields.demand("driver_rim", "required"),
        vbios_rim=fields.demand("vbios_rim", "required"),
        measurements=fields.demand("measurements", "all_equal"),
        minimum_driver_version=fields.matching("minimum_driver_version", _DRIVER),
        minimum_vbios_version=fields.matching("minimum_vbios_version", _VBIOS),
        ocsp=fields.demand("ocsp", "required"),
        ocsp_maximum_age_seconds=fields.bound("ocsp_maximum_age_seconds", 1, _YEAR),
        certificate_hold=fields.switch("certificate_hold"),
        cc_mode=fields.switch("cc_mode"),
        devtools_mode=fields.switch("devtools_mode"),
        ppcie_mode=fields.switch("ppcie_mode"),
        debug=fields.switch("debug"),
        secure_boot=fields.switch("secure_boot"),
    )
    fields.done()
    return rules
