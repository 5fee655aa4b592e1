"""The 64 bytes that tie evidence to a session (docs/spec/binding.md).

Evidence proves something about this session only because its report data is
the hash over everything the session speaks with: the plan, the TLS key, the
HPKE key, the receipt key and each verifier's nonce.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from enclave.core.encoding import lp
from enclave.core.errors import BindingRefused, DocumentRefused
from enclave.core.hpke import parse_public
from enclave.core.signing_key import parse_signing_key
from enclave.core.vocabulary import APPROVING_ROLES, DIGEST_SIZE, ROLES, SESSION_SIZE

BINDING_SIZE = 64
NONCE_SIZE = 32
RECEIPT_LABEL = "receipt"
LABELS = (*ROLES, RECEIPT_LABEL)

_BINDING_TAG = b"doubleblind/binding/v1"
_GPU_TAG = b"doubleblind/gpu-nonce/v1"
_PARTY_TAG = b"doubleblind/party-binding/v1"
_HEX = re.compile(r"(?:[0-9a-f]{2})*\Z")


def hex_bytes(name: str, text: str, size: int) -> bytes:
    """Decode lower hex of exactly `size` bytes."""
    if not isinstance(text, str) or len(text) != 2 * size or _HEX.match(text) is None:
        raise BindingRefused("binding_input", expected=f"{name}: {2 * size} lower hex digits")
    return bytes.fromhex(text)


def _exact(name: str, data: bytes, size: int) -> bytes:
    if not isinstance(data, bytes) or len(data) != size:
        raise BindingRefused("binding_input", expected=f"{name}: {size} bytes")
    return data


def _parsed_key(name: str, spki: bytes) -> bytes:
    try:
        parse_signing_key(spki)
    except DocumentRefused:
        raise BindingRefused("binding_input", expected=f"{name}: P-256 SPKI DER") from None
    return spki


@dataclass(frozen=True)
class BindingInputs:
    """What a session speaks with. Validated when made; refusal `binding_input`.

    plan: SHA-256 of the plan, hex.  session: 16 bytes, hex.
    tls_spki_sha256: 32 bytes.  hpke_key: 1216 bytes.
    signing_key: SubjectPublicKeyInfo DER of the receipt key.
    nonces: (label, 32 bytes); labels are roles or `receipt`, each at most once.
    Order is free: the encoding sorts by label.
    """

    plan: str
    session: str
    tls_spki_sha256: bytes
    hpke_key: bytes
    signing_key: bytes
    nonces: tuple[tuple[str, bytes], ...]

    def __post_init__(self) -> None:
        """Refuse malformed inputs and missing, unknown or repeated nonce labels."""
        hex_bytes("plan", self.plan, DIGEST_SIZE)
        hex_bytes("session", self.session, SESSION_SIZE)
        _exact("tls_spki_sha256", self.tls_spki_sha256, 32)
        try:
            parse_public(self.hpke_key)
        except DocumentRefused:
            raise BindingRefused("binding_input", expected="hpke_key: 1216 bytes") from None
        _parsed_key("signing_key", self.signing_key)
        if not self.nonces:
            raise BindingRefused("binding_nonce_missing", expected="at least one nonce")
        labels = [label for label, _ in self.nonces]
        if len(set(labels)) != len(labels):
            raise BindingRefused("binding_nonce_duplicate", expected="each label once")
        for label, nonce in self.nonces:
            if label not in LABELS:
                raise BindingRefused("binding_nonce_label", expected=" or ".join(LABELS))
            _exact(f"nonce {label}", nonce, NONCE_SIZE)


def encode_binding(inputs: BindingInputs) -> bytes:
    """The bytes that are hashed; the spec page walks through them."""
    nonces = [
        part for label, nonce in sorted(inputs.nonces) for part in (label.encode("ascii"), nonce)
    ]
    return lp(
        _BINDING_TAG,
        bytes.fromhex(inputs.plan),
        bytes.fromhex(inputs.session),
        inputs.tls_spki_sha256,
        inputs.hpke_key,
        inputs.signing_key,
        *nonces,
    )


def compute_binding(inputs: BindingInputs) -> bytes:
    """The 64 bytes of report data: SHA-512 over `encode_binding`."""
    return hashlib.sha512(encode_binding(inputs)).digest()


def gpu_nonce(binding: bytes) -> bytes:
    """The 32-byte nonce a GPU report carries, derived from the binding."""
    return hashlib.sha256(lp(_GPU_TAG, _exact("binding", binding, BINDING_SIZE))).digest()


def party_binding(
    plan: str, session: str, role: str, signing_key: bytes, challenge: bytes
) -> bytes:
    """The 64 bytes of report data of a party's own evidence, over the workload's challenge."""
    if role not in APPROVING_ROLES:
        raise BindingRefused("binding_input", expected=f"role: {' or '.join(APPROVING_ROLES)}")
    encoded = lp(
        _PARTY_TAG,
        hex_bytes("plan", plan, DIGEST_SIZE),
        hex_bytes("session", session, SESSION_SIZE),
        role.encode("ascii"),
        _parsed_key("signing_key", signing_key),
        _exact("challenge", challenge, NONCE_SIZE),
    )
    return hashlib.sha512(encoded).digest()


def refuse_other_binding(expected: bytes, got: bytes) -> None:
    """Refuse `binding_mismatch` unless both are the same 64 bytes."""
    _exact("expected", expected, BINDING_SIZE)
    if expected != got:
        raise BindingRefused(
            "binding_mismatch",
            expected=f"{expected[:8].hex()}…",
            got=f"{got[:8].hex()}…",
            hint="the evidence speaks for another plan, session, key or nonce",
        )
