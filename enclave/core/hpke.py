"""HPKE to a hybrid key: MLKEM768-X25519, HKDF-SHA256, AES-256-GCM, base mode.

RFC 9180 with the X-Wing KEM (id 0x647a).  A public key is the raw ML-KEM-768
key (1184 bytes) and the raw X25519 key (32 bytes).  There is no associated
data: whatever a ciphertext is bound to goes into `info`.

Key generation and sealing use the library's own randomness: the HPKE
interface of `cryptography` takes none from outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric import mlkem, x25519

from enclave.core.errors import DocumentRefused

PUBLIC_KEY_SIZE = 1216
PRIVATE_KEY_SIZE = 96
SEAL_OVERHEAD = 1088 + 32 + 16
"""Bytes that sealing adds: ML-KEM ciphertext, ephemeral X25519 key, GCM tag."""

_MLKEM_PUBLIC_SIZE = 1184
_MLKEM_SEED_SIZE = 64
_SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
_PROBE = x25519.X25519PrivateKey.from_private_bytes(b"\x01" * 32)
_FAILURES = (InvalidTag, TypeError, ValueError)


@dataclass(frozen=True, repr=False)
class RecipientPrivateKey:
    """A decryption key: both halves, because the library's pair gives neither back."""

    mlkem: mlkem.MLKEM768PrivateKey
    x25519: x25519.X25519PrivateKey


def generate_private() -> RecipientPrivateKey:
    """A fresh decryption key from the library's randomness."""
    return RecipientPrivateKey(
        mlkem.MLKEM768PrivateKey.generate(), x25519.X25519PrivateKey.generate()
    )


def private_to_bytes(private: RecipientPrivateKey) -> bytes:
    """The ML-KEM seed (64 bytes) and the X25519 scalar (32 bytes). Secret."""
    return private.mlkem.private_bytes_raw() + private.x25519.private_bytes_raw()


def private_from_bytes(data: bytes) -> RecipientPrivateKey:
    """The inverse of `private_to_bytes`."""
    if len(data) != PRIVATE_KEY_SIZE:
        raise DocumentRefused("hpke_private_key", expected=f"{PRIVATE_KEY_SIZE} bytes")
    try:
        return RecipientPrivateKey(
            mlkem.MLKEM768PrivateKey.from_seed_bytes(data[:_MLKEM_SEED_SIZE]),
            x25519.X25519PrivateKey.from_private_bytes(data[_MLKEM_SEED_SIZE:]),
        )
    except _FAILURES:
        raise DocumentRefused("hpke_private_key", expected="ML-KEM seed and X25519 key") from None


def public_bytes(private: RecipientPrivateKey) -> bytes:
    """The 1216 bytes that others seal to."""
    return (
        private.mlkem.public_key().public_bytes_raw()
        + private.x25519.public_key().public_bytes_raw()
    )


def parse_public(data: bytes) -> hpke.MLKEM768X25519PublicKey:
    """Parse 1216 public bytes; malformed ML-KEM and low-order X25519 keys are refused."""
    if len(data) != PUBLIC_KEY_SIZE:
        raise DocumentRefused(
            "hpke_public_key", expected=f"{PUBLIC_KEY_SIZE} bytes", got=f"{len(data)} bytes"
        )
    try:
        lattice = mlkem.MLKEM768PublicKey.from_public_bytes(data[:_MLKEM_PUBLIC_SIZE])
        curve = x25519.X25519PublicKey.from_public_bytes(data[_MLKEM_PUBLIC_SIZE:])
        # A low-order point shows only in an exchange: its shared secret is zero.
        _PROBE.exchange(curve)
        return hpke.MLKEM768X25519PublicKey(lattice, curve)
    except _FAILURES:
        raise DocumentRefused("hpke_public_key", expected="MLKEM768-X25519 public key") from None


def seal_to(public: bytes, info: bytes, plaintext: bytes) -> bytes:
    """Seal to 1216 public bytes; the result opens only under the same `info`."""
    key = parse_public(public)
    try:
        return _SUITE.encrypt(plaintext, key, info)
    except _FAILURES:
        raise DocumentRefused("hpke_seal", expected="an MLKEM768-X25519 public key") from None


def open_with(private: RecipientPrivateKey, info: bytes, ciphertext: bytes) -> bytes:
    """Open a sealed message. Every failure is the one refusal `hpke_open`."""
    try:
        pair = hpke.MLKEM768X25519PrivateKey(private.mlkem, private.x25519)
        return _SUITE.decrypt(ciphertext, pair, info)
    except _FAILURES:
        raise DocumentRefused("hpke_open", expected="a message sealed to this key") from None
