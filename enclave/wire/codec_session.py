"""Protobuf <-> domain: session, plan, evidence, approvals, grants, findings."""

from __future__ import annotations

from attestation.errors import Check, CheckState, Finding
from enclave.core.hpke import PUBLIC_KEY_SIZE
from enclave.core.vocabulary import DIGEST_SIZE, SESSION_SIZE
from enclave.wire.generated.doubleblind.v1 import session_pb2 as pb
from enclave.wire.messages import AttestReply, RefusalDetail, SessionView
from enclave.wire.reading import (
    malformed,
    read_bytes,
    read_digest,
    read_message,
    read_name,
    read_names,
    read_plan,
    read_text,
)

_MAX_TEXT = 4096
_MAX_FINDINGS = 1024


def print_session(view: SessionView) -> bytes:
    """`GetSessionReply`."""
    return pb.GetSessionReply(
        session=bytes.fromhex(view.session),
        state=view.state,
        plan=bytes.fromhex(view.plan_digest),
        tls_spki_sha256=view.tls_spki_sha256,
        hpke_key=view.hpke_key,
        signing_key=view.signing_key,
        approvals=view.approvals,
        grants=view.grants,
        party_evidence=view.party_evidence,
        missing=view.missing,
        party_challenge=view.party_challenge,
        runs_spent=view.runs_spent,
        max_runs=view.max_runs,
        last_run=view.last_run,
        tier=view.tier,
    ).SerializeToString()


def parse_session(data: bytes) -> SessionView:
    """`GetSessionReply`."""
    reply = read_message(pb.GetSessionReply, data)
    return SessionView(
        session=read_bytes(reply.session, "session", SESSION_SIZE).hex(),
        state=read_name(reply.state, "state"),
        plan_digest=read_plan(reply.plan),
        tls_spki_sha256=read_bytes(reply.tls_spki_sha256, "tls_spki_sha256", DIGEST_SIZE),
        hpke_key=read_bytes(reply.hpke_key, "hpke_key", PUBLIC_KEY_SIZE),
        signing_key=reply.signing_key,
        approvals=read_names(reply.approvals, "approvals"),
        grants=read_names(reply.grants, "grants"),
        party_evidence=read_names(reply.party_evidence, "party_evidence"),
        missing=read_names(reply.missing, "missing"),
        party_challenge=read_bytes(reply.party_challenge, "party_challenge", DIGEST_SIZE),
        runs_spent=reply.runs_spent,
        max_runs=reply.max_runs,
        last_run=reply.last_run,
        tier=read_text(reply.tier, 16),
    )


def print_attest(reply: AttestReply) -> bytes:
    """`AttestReply`."""
    return pb.AttestReply(
        session=bytes.fromhex(reply.session),
        evidence=reply.evidence,
        tls_spki_sha256=reply.tls_spki_sha256,
        hpke_key=reply.hpke_key,
        signing_key=reply.signing_key,
    ).SerializeToString()


def parse_attest(data: bytes) -> AttestReply:
    """`AttestReply`."""
    reply = read_message(pb.AttestReply, data)
    return AttestReply(
        session=read_bytes(reply.session, "session", SESSION_SIZE).hex(),
        evidence=reply.evidence,
        tls_spki_sha256=read_bytes(reply.tls_spki_sha256, "tls_spki_sha256", DIGEST_SIZE),
        hpke_key=read_bytes(reply.hpke_key, "hpke_key", PUBLIC_KEY_SIZE),
        signing_key=reply.signing_key,
    )


def print_digest(digest: str) -> bytes:
    """`SubmitPartyEvidenceReply`."""
    return pb.SubmitPartyEvidenceReply(digest=bytes.fromhex(digest)).SerializeToString()


def parse_digest(data: bytes) -> str:
    """`SubmitPartyEvidenceReply`."""
    return read_digest(read_message(pb.SubmitPartyEvidenceReply, data).digest, "digest")


def print_findings(detail: RefusalDetail | None) -> bytes:
    """`GetFindingsReply`."""
    if detail is None:
        return pb.GetFindingsReply().SerializeToString()
    return pb.GetFindingsReply(
        refusal=pb.Refusal(
            stage=detail.stage,
            code=detail.code,
            expected=read_text(detail.expected, _MAX_TEXT),
            got=read_text(detail.got, _MAX_TEXT),
            hint=read_text(detail.hint, _MAX_TEXT),
            attestation_stage=detail.attestation_stage,
        ),
        findings=[
            pb.Finding(
                check=read_text(finding.check, _MAX_TEXT),
                field=read_text(finding.field, _MAX_TEXT),
                expected=read_text(finding.expected, _MAX_TEXT),
                got=read_text(finding.got, _MAX_TEXT),
                code=finding.code,
            )
            for finding in detail.findings[:_MAX_FINDINGS]
        ],
        checks=[
            pb.Check(name=check.name, state=str(check.state))
            for check in detail.checks[:_MAX_FINDINGS]
        ],
    ).SerializeToString()


def parse_findings(data: bytes) -> RefusalDetail | None:
    """`GetFindingsReply`."""
    reply = read_message(pb.GetFindingsReply, data)
    if not reply.HasField("refusal"):
        return None
    states = {str(state): state for state in CheckState}
    if not all(check.state in states for check in reply.checks):
        raise malformed(f"checks.state: {' or '.join(states)}")
    return RefusalDetail(
        stage=read_name(reply.refusal.stage, "stage"),
        code=read_name(reply.refusal.code, "code"),
        expected=read_text(reply.refusal.expected, _MAX_TEXT),
        got=read_text(reply.refusal.got, _MAX_TEXT),
        hint=read_text(reply.refusal.hint, _MAX_TEXT),
        attestation_stage=read_text(reply.refusal.attestation_stage, 64),
        findings=tuple(
            Finding(
                check=read_text(finding.check, _MAX_TEXT),
                field=read_text(finding.field, _MAX_TEXT),
                expected=read_text(finding.expected, _MAX_TEXT),
                got=read_text(finding.got, _MAX_TEXT),
                code=read_text(finding.code, 64),
            )
            for finding in reply.findings
        ),
        checks=tuple(
            Check(name=read_text(check.name, _MAX_TEXT), state=states[check.state])
            for check in reply.checks
        ),
    )
