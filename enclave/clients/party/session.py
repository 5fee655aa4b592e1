"""Opening a session: nothing is said to an enclave before its evidence was appraised.

The steps are those of docs/architecture.md, in this order:

1. the plan names this very party, and the policy this party brought;
2. the server's certificate is fetched and pinned as the channel's only root;
3. the enclave answers a fresh nonce of this party with evidence;
4. the binding is computed here, from the certificate seen and the keys reported;
5. the evidence is verified under this party's roots, at this party's time;
6. it is appraised under the plan's policy and reference values.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Self

from attestation.appraise import appraise_evidence, parse_policy, parse_reference_values
from attestation.parse.bundle import parse_evidence_bundle
from attestation.types import AttestationResult, TrustRoots
from attestation.verify import verify_evidence
from enclave.clients.channel.bootstrap import fetch_server_certificate
from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.clients.party.errors import ClientRefused
from enclave.clients.party.keys import PartyKeys
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.binding import BindingInputs, compute_binding
from enclave.core.canonical import digest_bytes, parse_json_object, print_canonical
from enclave.core.errors import BindingRefused
from enclave.core.party import Party, certificate_spki

BOOTSTRAP_SECONDS = 20.0
DEFAULT_TIMEOUTS = Timeouts()


@dataclass(frozen=True)
class PartySession:
    """A channel to an enclave whose evidence this party accepted."""

    client: EnclaveClient = field(repr=False)
    keys: PartyKeys = field(repr=False)
    directory: PlanDirectory
    inputs: BindingInputs
    result: AttestationResult

    @property
    def role(self) -> str:
        return self.keys.party.role

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()


def open_party_session(
    keys: PartyKeys,
    directory: PlanDirectory,
    endpoint: str,
    *,
    roots: TrustRoots,
    policy_pin: bytes | None,
    nonce: bytes,
    now: datetime,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> PartySession:
    """Connect, demand evidence over `nonce` (32 fresh bytes) and appraise it at `now`.

    `policy_pin` is this party's own attestation policy (JSON bytes), if it brought one.
    Raises ClientRefused `plan_not_mine`, `policy_pin_differs`; BindingRefused;
    AttestationError; ChannelRefused; SessionRefused.
    """
    refuse_foreign_plan(directory, keys.party)
    refuse_other_policy(directory, policy_pin)
    certificate = fetch_server_certificate(endpoint, BOOTSTRAP_SECONDS)
    client = open_channel(keys, directory, endpoint, certificate, timeouts=timeouts)
    try:
        inputs, result = _demand_evidence(
            client, certificate, keys, directory, roots=roots, nonce=nonce, now=now
        )
    except BaseException:
        client.close()
        raise
    return PartySession(client, keys, directory, inputs, result)


def open_channel(
    keys: PartyKeys,
    directory: PlanDirectory,
    endpoint: str,
    certificate: bytes,
    *,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> EnclaveClient:
    """A channel that nothing was proved about yet: good for public state and no more."""
    return EnclaveClient(
        endpoint,
        certificate,
        client_key_pem=keys.tls_key_pem,
        client_certificate_pem=keys.tls_certificate_pem,
        plan=directory.plan.digest,
        timeouts=timeouts,
    )


def refuse_foreign_plan(directory: PlanDirectory, party: Party) -> None:
    """Refuse a plan that does not name exactly this party, with all its keys."""
    if party not in directory.plan.parties:
        raise ClientRefused(
            "plan_not_mine",
            expected=f"{party.role} with the signing key {party.key_id[:16]}…",
            got=f"plan {directory.plan.digest[:16]}…",
            hint="the plan names another party, or older keys of this one",
        )


def refuse_other_policy(directory: PlanDirectory, policy_pin: bytes | None) -> None:
    """Refuse a plan that pins another attestation policy than the party's own."""
    if policy_pin is None:
        return
    digest = digest_bytes(print_canonical(parse_json_object(policy_pin)))
    if not hmac.compare_digest(digest, directory.plan.attestation_policy):
        raise ClientRefused(
            "policy_pin_differs",
            expected=f"attestation policy {digest}",
            got=directory.plan.attestation_policy,
            hint="the plan was written with another policy than yours: compare both",
        )


def _demand_evidence(
    client: EnclaveClient,
    certificate: bytes,
    keys: PartyKeys,
    directory: PlanDirectory,
    *,
    roots: TrustRoots,
    nonce: bytes,
    now: datetime,
) -> tuple[BindingInputs, AttestationResult]:
    reply = client.attest(nonce)
    seen = hashlib.sha256(certificate_spki(certificate)).digest()
    if not hmac.compare_digest(seen, reply.tls_spki_sha256):
        raise BindingRefused(
            "server_key_mismatch",
            expected=f"the TLS key of this channel, {seen.hex()[:16]}…",
            got=f"{reply.tls_spki_sha256.hex()[:16]}…",
            hint="something stands between you and the enclave",
        )
    inputs = BindingInputs(
        plan=directory.plan.digest,
        session=reply.session,
        tls_spki_sha256=seen,
        hpke_key=reply.hpke_key,
        signing_key=reply.signing_key,
        nonces=((keys.party.role, nonce),),
    )
    verified = verify_evidence(parse_evidence_bundle(reply.evidence), roots=roots, now=now)
    result = appraise_evidence(
        verified,
        policy=parse_policy(directory.attestation_policy),
        reference_values=parse_reference_values(directory.reference_values),
        expected_binding=compute_binding(inputs),
        now=now,
    )
    return inputs, result
