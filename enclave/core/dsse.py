"""DSSE envelopes with exactly one ECDSA P-256 signature, in one spelling.

The signature is over `PAE(payloadType, payload)` (DSSE v1.0.2) with SHA-256.
Accepted signatures are DER as ECDSA-Sig-Value and have the low `s`, so nobody
can make a second valid envelope out of one.  Signing is deterministic
(RFC 6979) and needs no randomness.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256

from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.errors import DocumentRefused
from enclave.core.fields import Fields
from enclave.core.signing_key import key_id, parse_signing_key, print_signing_key
from enclave.core.vocabulary import DIGEST_SIZE

IN_TOTO_PAYLOAD = "application/vnd.in-toto+json"
_MAX_SIGNATURE_BYTES = 72
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True)
class Envelope:
    """A parsed envelope. Its payload is not believed before `verify_envelope`.

    keyid: SHA-256 of the signer's SubjectPublicKeyInfo, hex.  signature: DER.
    """

    payload: bytes
    keyid: str
    signature: bytes

    def to_json(self) -> dict[str, Any]:
        """The envelope as a JSON object."""
        return {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": IN_TOTO_PAYLOAD,
            "signatures": [{"keyid": self.keyid, "sig": base64.b64encode(self.signature).decode()}],
        }

    def to_bytes(self) -> bytes:
        """The envelope as RFC 8785 bytes."""
        return print_canonical(self.to_json())


@dataclass(frozen=True)
class VerifiedPayload:
    """Bytes that the holder of `spki` signed. Made only by `verify_envelope`."""

    payload: bytes
    spki: bytes


def encode_pae(payload: bytes) -> bytes:
    """Pre-authentication encoding: the bytes that are signed."""
    kind = IN_TOTO_PAYLOAD.encode("ascii")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def read_envelope(fields: Fields, *, max_payload: int) -> Envelope:
    """Read an envelope object, alone or out of a larger document."""
    payload = fields.base64("payload", max_size=max_payload)
    fields.constant("payloadType", IN_TOTO_PAYLOAD)
    signature = Fields(fields.array("signatures", 1, 1)[0], "envelope.signatures[0]")
    fields.done()
    envelope = Envelope(
        payload,
        signature.hex("keyid", DIGEST_SIZE),
        signature.base64("sig", max_size=_MAX_SIGNATURE_BYTES),
    )
    signature.done()
    return envelope


def parse_envelope(data: bytes, *, max_payload: int) -> Envelope:
    """Parse an envelope (canonical bytes, closed)."""
    # Base64 grows by a third; the rest of the envelope is below 512 bytes.
    document = parse_canonical(data, max_bytes=max_payload * 4 // 3 + 512)
    return read_envelope(Fields(document, "envelope"), max_payload=max_payload)


def sign_envelope(payload: bytes, signing_key: ec.EllipticCurvePrivateKey) -> Envelope:
    """Sign a payload; the signature is deterministic and has the low `s`."""
    spki = print_signing_key(signing_key.public_key())
    parse_signing_key(spki)
    raw = signing_key.sign(encode_pae(payload), ec.ECDSA(SHA256(), deterministic_signing=True))
    r, s = decode_dss_signature(raw)
    return Envelope(payload, key_id(spki), encode_dss_signature(r, min(s, _P256_ORDER - s)))


def verify_envelope(envelope: Envelope, spki: bytes) -> VerifiedPayload:
    """Verify an envelope under one public key; refusal `dsse_signature`."""
    refusal = DocumentRefused("dsse_signature", expected=f"a signature by {key_id(spki)[:16]}…")
    if envelope.keyid != key_id(spki):
        raise refusal
    try:
        r, s = decode_dss_signature(envelope.signature)
        one_spelling = encode_dss_signature(r, s) == envelope.signature
    except ValueError:
        raise refusal from None
    if not one_spelling or not 0 < s <= _P256_ORDER // 2:
        raise refusal
    try:
        parse_signing_key(spki).verify(
            envelope.signature, encode_pae(envelope.payload), ec.ECDSA(SHA256())
        )
    except InvalidSignature:
        raise refusal from None
    return VerifiedPayload(envelope.payload, spki)
