"""Callers: pinned certificates, roles, live calls, revocation.

gRPC's own check is not enough.  It accepts a leaf that a pinned certificate
*issued*, and it never looks at open connections again.  So each call maps the
exact leaf key to a party of the plan, and a removed party's live calls are
cancelled.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from enclave.core.errors import PlanRefused, Refusal, SessionRefused
from enclave.core.plan import Plan
from enclave.wire.errors import ChannelRefused
from enclave.workload.service.identity import ServerIdentity

MAX_LIVE_CALLS = 8
"""Calls of one caller at a time: nobody may hold every thread."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Caller:
    """An authenticated party of a plan (its digest)."""

    plan: str
    role: str
    spki_sha256: bytes


@dataclass(eq=False)
class LiveCall:
    """A call that holds a thread; `plan` is empty until its first message came."""

    context: grpc.ServicerContext
    plan: str = ""


class PeerRegistry:
    """Who may connect, who a caller is, and which calls are live."""

    def __init__(self, plans: Callable[[], Mapping[str, Plan]], identity: ServerIdentity) -> None:
        self._plans = plans
        self._identity = identity
        self._guard = threading.Lock()
        self._live: dict[bytes, list[LiveCall]] = {}
        self._configuration = self._build_configuration()

    def credentials(self) -> grpc.ServerCredentials:
        """TLS with client certificates, pinned to the parties of every registered plan."""
        # The fetcher can not fail: after a failure gRPC would keep the previous roots.
        return grpc.dynamic_ssl_server_credentials(
            self._configuration, lambda: self._configuration, require_client_authentication=True
        )

    def refresh(self) -> None:
        """Plans were added or removed: pin anew and cancel live calls of removed parties."""
        self._configuration = self._build_configuration()
        with self._guard:
            live = [(spki, call) for spki, calls in self._live.items() for call in calls]
        for spki, call in live:
            try:
                self._refuse_removed(spki, call)
            except Refusal:
                call.context.cancel()  # type: ignore[no-untyped-call]

    def identify(self, plan: str, spki_sha256: bytes) -> tuple[Plan, Caller]:
        """The plan and the caller's role in it; `peer_unknown` without telling which is wrong."""
        known = self._plans().get(plan)
        if known is None:
            raise _unknown()
        party = known.party_of_spki(spki_sha256)
        return known, Caller(plan, party.role, spki_sha256)

    def refuse_stranger(self, spki_sha256: bytes) -> None:
        """Refuse `peer_unknown` a key that is in no plan."""
        for plan in self._plans().values():
            if any(party.tls_spki_sha256 == spki_sha256 for party in plan.parties):
                return
        raise _unknown()

    @contextlib.contextmanager
    def admit(self, spki_sha256: bytes, context: grpc.ServicerContext) -> Iterator[LiveCall]:
        """Count a call as live until the block ends; refusal `caller_busy`.

        Before its first message is waited for: a stream that stays silent holds
        a thread like any other.  `join` tells its plan afterwards.
        """
        call = LiveCall(context)
        with self._guard:
            calls = self._live.setdefault(spki_sha256, [])
            if len(calls) >= MAX_LIVE_CALLS:
                raise ChannelRefused(
                    "caller_busy",
                    expected=f"at most {MAX_LIVE_CALLS} calls at a time",
                    hint="close other clients of this party",
                )
            calls.append(call)
        try:
            self._refuse_removed(spki_sha256, call)
            yield call
        finally:
            with self._guard:
                calls.remove(call)
                if not calls:
                    self._live.pop(spki_sha256, None)

    def join(self, call: LiveCall, plan: str, spki_sha256: bytes) -> tuple[Plan, Caller]:
        """The plan of a live call and its caller's role; `peer_unknown` as in `identify`."""
        with self._guard:
            call.plan = plan
        # Identified only now: a removal before would not have found the call in this plan.
        return self.identify(plan, spki_sha256)

    def _refuse_removed(self, spki_sha256: bytes, call: LiveCall) -> None:
        if call.plan:
            self.identify(call.plan, spki_sha256)
        else:
            self.refuse_stranger(spki_sha256)

    def _build_configuration(self) -> Any:
        identity = self._identity
        roots = [party.tls_certificate for party in _pinnable(self._plans())]
        # Nobody else holds the server's key: with no plan, nobody gets in.
        roots = roots or [identity.certificate_der]
        return grpc.ssl_server_certificate_configuration(
            [(identity.key_pem, identity.certificate_pem)],
            root_certificates=b"".join(
                x509.load_der_x509_certificate(root).public_bytes(Encoding.PEM) for root in roots
            ),
        )


def refuse_unpinnable(plan: Plan, plans: Mapping[str, Plan]) -> None:
    """Refuse a plan whose certificate subject another registered certificate has.

    TLS stacks look roots up by subject: the second of two would not be found.
    Call it before a plan is registered.  Refusal `plan_certificate_subject_taken`.
    """
    pinned = {party.tls_subject: party.tls_certificate for party in _pinnable(plans)}
    for party in plan.parties:
        if pinned.get(party.tls_subject, party.tls_certificate) != party.tls_certificate:
            raise PlanRefused(
                "plan_certificate_subject_taken",
                expected=f"a certificate subject of its own for {party.role}",
                hint="make a new TLS certificate for this party",
            )


def _pinnable(plans: Mapping[str, Plan]) -> list[Any]:
    pinned: dict[bytes, Any] = {}
    for digest in sorted(plans):
        for party in plans[digest].parties:
            first = pinned.setdefault(party.tls_subject, party)
            if first.tls_certificate != party.tls_certificate:
                _LOG.warning("a certificate subject is pinned already; plan %s", digest[:16])
    return list(pinned.values())


def caller_key(context: grpc.ServicerContext) -> bytes:
    """SHA-256 of the SPKI of the caller's leaf certificate; refusal `peer_unknown`."""
    leaves = context.auth_context().get("x509_pem_cert", ())
    if len(leaves) != 1:
        raise _unknown()
    return _leaf_spki_sha256(bytes(leaves[0]))


@lru_cache(maxsize=64)
def _leaf_spki_sha256(pem: bytes) -> bytes:
    try:
        key = x509.load_pem_x509_certificate(pem).public_key()
    except ValueError:
        raise _unknown() from None
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).digest()


def _unknown() -> SessionRefused:
    return SessionRefused(
        "peer_unknown",
        expected="the certificate of a party of this plan",
        hint="is the plan registered, and is this the key that it names?",
    )
