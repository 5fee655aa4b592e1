"""Hardware kinds: what a machine needs before it can be asked for evidence.

This version collects none of them. It says precisely what is missing and
never stands in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attestation.collect.refusals import refuse_collect
from attestation.errors import CollectError
from attestation.types.evidence import NITRO, NVIDIA_GPU, SEV_SNP, TDX, TPM2


@dataclass(frozen=True, slots=True)
class Requirement:
    """Paths that must exist, in order, and the kernel feature that makes each."""

    steps: tuple[tuple[str, str], ...]


_TSM = "/sys/kernel/config/tsm/report"

REQUIREMENTS = {
    SEV_SNP: Requirement(
        (
            ("/dev/sev-guest", "CONFIG_SEV_GUEST in an SEV-SNP guest"),
            (_TSM, "CONFIG_TSM_REPORTS (Linux 6.7) with configfs mounted"),
        )
    ),
    TDX: Requirement(
        (
            ("/dev/tdx_guest", "CONFIG_TDX_GUEST_DRIVER in a TDX guest"),
            (_TSM, "CONFIG_TSM_REPORTS (Linux 6.7) with configfs mounted"),
        )
    ),
    NVIDIA_GPU: Requirement((("/dev/nvidiactl", "the NVIDIA driver (nvidia.ko)"),)),
    TPM2: Requirement((("/dev/tpmrm0", "CONFIG_TCG_TPM with a TPM 2.0"),)),
    NITRO: Requirement((("/dev/nsm", "CONFIG_NSM in a Nitro enclave"),)),
}


def refuse_hardware(kind: str, *, system_root: Path = Path("/")) -> CollectError:
    """Say why evidence of a hardware kind can not be collected here.

    `device_missing` names the first path that is not there and the kernel
    feature behind it; `kind_not_collected` means that the device is there and
    this version has no collector for it.
    """
    for path, feature in REQUIREMENTS[kind].steps:
        if not (system_root / path.removeprefix("/")).exists():
            return refuse_collect(
                "device_missing", field=path, expected=f"present: {feature}", got="no such path"
            )
    return refuse_collect(
        "kind_not_collected", field="kind", expected="a collector for this kind", got=kind
    )
