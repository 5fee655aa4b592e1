"""The GPU's nonce: it ties the GPU's report to the CPU's REPORT_DATA."""

from __future__ import annotations

import hashlib
import struct

_TAG = b"doubleblind/gpu-nonce/v1"


def derive_gpu_nonce(binding: bytes) -> bytes:
    """32 bytes: SHA-256 over the tag, NUL, and the u32-length-prefixed 64-byte binding.

    The same function as in the binding's specification (docs/spec/binding.md);
    it is written again here because an auditor uses this package alone.
    """
    return hashlib.sha256(_TAG + b"\x00" + struct.pack(">I", len(binding)) + binding).digest()
