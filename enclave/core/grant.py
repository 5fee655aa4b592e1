"""Key grant: an artifact key, sealed to one attested session (docs/spec/grant.md).

`grant_key` accepts nothing but an `AttestationResult`, so no key can be sealed
to a session whose evidence was not appraised.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, replace

from attestation.types import AttestationResult
from enclave.core.binding import BindingInputs, compute_binding, hex_bytes, refuse_other_binding
from enclave.core.canonical import parse_canonical, print_canonical
from enclave.core.encoding import lp
from enclave.core.errors import BindingRefused, DocumentRefused, GrantRefused
from enclave.core.fields import Fields
from enclave.core.hpke import SEAL_OVERHEAD, RecipientPrivateKey, open_with, seal_to
from enclave.core.vocabulary import (
    ARTIFACT_OWNER,
    ARTIFACTS,
    DIGEST_SIZE,
    KEY_GRANT_TYPE,
    MAX_RUNS,
    ROLES,
    SESSION_SIZE,
)

KEY_SIZE = 32
SALT_SIZE = 32
MAX_GRANT_BYTES = 8 * 1024
_SEALED_SIZE = KEY_SIZE + SALT_SIZE + SEAL_OVERHEAD
_TAG = b"doubleblind/key-grant/v1"


@dataclass(frozen=True)
class KeyGrant:
    """A parsed grant, sealed: what it says it is for, not yet believed.

    plan, evidence, commitment: SHA-256, hex.  session: 16 bytes, hex.
    run: counted from 1.  sealed: HPKE ciphertext.
    """

    plan: str
    session: str
    evidence: str
    role: str
    artifact: str
    commitment: str
    run: int
    sealed: bytes

    def info(self) -> bytes:
        """The HPKE `info`: every field but the ciphertext."""
        return lp(
            _TAG,
            bytes.fromhex(self.plan),
            bytes.fromhex(self.session),
            bytes.fromhex(self.evidence),
            self.role.encode("ascii"),
            self.artifact.encode("ascii"),
            bytes.fromhex(self.commitment),
            struct.pack(">I", self.run),
        )

    def to_bytes(self) -> bytes:
        """The grant as RFC 8785 bytes."""
        return print_canonical(
            {
                "type": KEY_GRANT_TYPE,
                "plan": self.plan,
                "session": self.session,
                "evidence": self.evidence,
                "role": self.role,
                "artifact": self.artifact,
                "commitment": self.commitment,
                "run": self.run,
                "sealed": base64.b64encode(self.sealed).decode(),
            }
        )


@dataclass(frozen=True, repr=False)
class OpenedGrant:
    """An artifact key and its commitment salt, 32 bytes each. Secret."""

    key: bytes
    salt: bytes
    run: int


def parse_grant(data: bytes) -> KeyGrant:
    """Parse a grant (canonical bytes, closed)."""
    fields = Fields(parse_canonical(data, max_bytes=MAX_GRANT_BYTES), "grant")
    fields.constant("type", KEY_GRANT_TYPE)
    grant = KeyGrant(
        plan=fields.hex("plan", DIGEST_SIZE),
        session=fields.hex("session", SESSION_SIZE),
        evidence=fields.hex("evidence", DIGEST_SIZE),
        role=fields.constant("role", *ROLES),
        artifact=fields.constant("artifact", *ARTIFACTS),
        commitment=fields.hex("commitment", DIGEST_SIZE),
        run=fields.integer("run", 1, MAX_RUNS),
        sealed=fields.base64("sealed", max_size=_SEALED_SIZE, size=_SEALED_SIZE),
    )
    fields.done()
    return grant


def _refuse_malformed(evidence_digest: str, commitment: str, run: int) -> None:
    try:
        hex_bytes("evidence digest", evidence_digest, DIGEST_SIZE)
        hex_bytes("commitment", commitment, DIGEST_SIZE)
    except BindingRefused as refusal:
        raise GrantRefused("grant_input", expected=refusal.expected) from None
    if not 1 <= run <= MAX_RUNS:
        raise GrantRefused("grant_run_past_max", expected=f"1 to {MAX_RUNS}", got=str(run))


def _refuse_other_owner(role: str, artifact: str) -> None:
    if artifact not in ARTIFACTS:
        raise GrantRefused("grant_other_artifact", expected=" or ".join(ARTIFACTS))
    if ARTIFACT_OWNER[artifact] != role:
        raise GrantRefused("grant_other_role", expected=ARTIFACT_OWNER[artifact], got=role)


def grant_key(
    result: AttestationResult,
    *,
    inputs: BindingInputs,
    evidence_digest: str,
    role: str,
    artifact: str,
    commitment: str,
    run: int,
    key: bytes,
    salt: bytes,
) -> bytes:
    """Seal an artifact key to the session that `result` vouches for.

    `inputs` is what the caller knows of the session (its plan, the server key
    it sees, the HPKE key, its own nonce): the appraised evidence must bind
    exactly that, and must be the evidence with this digest.
    """
    if not isinstance(result, AttestationResult):
        raise GrantRefused("grant_not_appraised", expected="an AttestationResult")
    _refuse_malformed(evidence_digest, commitment, run)
    _refuse_other_owner(role, artifact)
    if role not in {label for label, _ in inputs.nonces}:
        raise GrantRefused("grant_nonce_missing", expected=f"a nonce of {role} in the binding")
    refuse_other_binding(compute_binding(inputs), result.binding)
    if result.evidence_digest != evidence_digest:
        raise GrantRefused(
            "grant_other_evidence", expected=result.evidence_digest, got=evidence_digest
        )
    if len(key) != KEY_SIZE or len(salt) != SALT_SIZE:
        raise GrantRefused("grant_input", expected="a 32-byte key and a 32-byte salt")
    grant = KeyGrant(
        inputs.plan, inputs.session, evidence_digest, role, artifact, commitment, run, b""
    )
    sealed = seal_to(inputs.hpke_key, grant.info(), key + salt)
    return replace(grant, sealed=sealed).to_bytes()


def open_grant(
    grant: bytes,
    *,
    private_key: RecipientPrivateKey,
    plan: str,
    session: str,
    evidence_digest: str,
    role: str,
    artifact: str,
    commitment: str,
    max_runs: int,
) -> OpenedGrant:
    """Open a grant inside the session it was made for.

    The caller states what it expects; each field that differs has its own
    refusal.  The ciphertext is bound to the same fields, so an edited grant
    fails as `grant_sealed_invalid`.
    """
    parsed = parse_grant(grant)
    expectations = (
        ("grant_other_plan", plan, parsed.plan),
        ("grant_other_session", session, parsed.session),
        ("grant_other_evidence", evidence_digest, parsed.evidence),
        ("grant_other_role", role, parsed.role),
        ("grant_other_artifact", artifact, parsed.artifact),
        ("grant_other_commitment", commitment, parsed.commitment),
    )
    for code, expected, got in expectations:
        if expected != got:
            raise GrantRefused(code, expected=expected, got=got)
    _refuse_other_owner(role, artifact)
    if parsed.run > max_runs:
        raise GrantRefused(
            "grant_run_past_max", expected=f"at most {max_runs}", got=str(parsed.run)
        )
    try:
        plaintext = open_with(private_key, parsed.info(), parsed.sealed)
    except DocumentRefused:
        raise GrantRefused(
            "grant_sealed_invalid", expected="a key sealed to this session's HPKE key"
        ) from None
    if len(plaintext) != KEY_SIZE + SALT_SIZE:
        raise GrantRefused("grant_sealed_invalid", expected="a key and a salt")
    return OpenedGrant(plaintext[:KEY_SIZE], plaintext[KEY_SIZE:], parsed.run)
