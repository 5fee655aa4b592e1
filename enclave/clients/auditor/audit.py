"""Auditing a receipt, offline: every stage in order, every check in the list.

The auditor needs the receipt, its own roots and policy, and the time.  Nothing
here asks a network, a clock or another party.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from attestation.appraise import AttestationResult, parse_policy, parse_reference_values
from enclave.clients.auditor.checklist import AuditChecklist
from enclave.clients.auditor.evidence_checks import (
    Judge,
    record_evidence,
    skip_evidence,
    unproven_claims,
)
from enclave.clients.auditor.report import NEVER_PROVEN, NO_EVIDENCE, NO_PLAN, AuditReport
from enclave.clients.auditor.run_checks import record_run
from enclave.clients.auditor.sources import MISSING, SHARED, AuditSources
from enclave.core.approval import verify_approval
from enclave.core.binding import compute_binding
from enclave.core.canonical import digest_bytes
from enclave.core.dsse import verify_envelope
from enclave.core.errors import PlanRefused, ReceiptRefused
from enclave.core.plan_terms import EvidenceDemand
from enclave.core.receipt import Receipt, parse_receipt
from enclave.core.result_policy import ResultPolicy, parse_result_policy
from enclave.core.run_facts import RunFacts
from enclave.core.times import parse_time
from enclave.core.vocabulary import APPROVING_ROLES

_UNREADABLE = "the receipt did not parse"


def audit_receipt(name: str, data: bytes, sources: AuditSources, *, now: datetime) -> AuditReport:
    """Audit receipt bytes at `now`. Never raises for what the receipt says: it is in the report."""
    checks = AuditChecklist()
    receipt = checks.attempt(
        "envelope",
        "format",
        lambda: parse_receipt(data),
        lambda _receipt: f"{len(data)} bytes, sha256:{digest_bytes(data)[:16]}…",
    )
    facts = None if receipt is None else receipt.facts
    _record_envelope(checks, receipt)
    _record_plan(checks, facts, sources)
    _record_approvals(checks, facts)
    judge = _record_policies(checks, facts, sources, now)
    policy = _record_result_policy(checks, facts, sources)
    results = _record_session_evidence(checks, facts, judge)
    results += _record_party_evidence(checks, facts, sources, judge)
    record_run(checks, facts, policy, now, _UNREADABLE)
    results += _record_closing(checks, receipt, judge)
    unproven: list[str] = [] if results else [NO_EVIDENCE]
    unproven += [] if sources.expected_plan is not None else [NO_PLAN]
    for result in results:
        unproven += [line for line in unproven_claims(result) if line not in unproven]
    return AuditReport(
        receipt=name,
        plan=None if facts is None else facts.plan.digest,
        run=None if facts is None else facts.run,
        session=None if facts is None else facts.session,
        now=now,
        origins=sources.origins,
        checks=checks.checks,
        not_proven=(*unproven, *NEVER_PROVEN),
    )


def _record_envelope(checks: AuditChecklist, receipt: Receipt | None) -> None:
    if receipt is None:
        checks.skip("envelope", "signature", _UNREADABLE)
        return

    def refuse_unsigned() -> str:
        verify_envelope(receipt.envelope, receipt.facts.keys.signing_key)
        return f"signed by the receipt key it names, {receipt.envelope.keyid[:16]}…"

    checks.attempt("envelope", "signature", refuse_unsigned, str)


def _record_plan(checks: AuditChecklist, facts: RunFacts | None, sources: AuditSources) -> None:
    if facts is None:
        checks.skip("plan", "digest", _UNREADABLE)
        checks.skip("keys", "session", _UNREADABLE)
        return

    def refuse_other_plan() -> str:
        expected = sources.expected_plan
        if expected is not None and not hmac.compare_digest(expected, facts.plan.digest):
            raise PlanRefused("audit_other_plan", expected=expected, got=facts.plan.digest)
        known = "the one given" if expected is not None else "as the receipt carries it"
        return f"{facts.plan.title!r}, sha256:{facts.plan.digest[:16]}…, {known}"

    checks.attempt("plan", "digest", refuse_other_plan, str)

    def refuse_shared_keys() -> str:
        ours = {facts.keys.signing_key, facts.keys.hpke_key, facts.keys.tls_spki_sha256}
        theirs = {
            key
            for party in facts.plan.parties
            for key in (party.signing_key, party.recipient_key, party.tls_spki_sha256)
        }
        if ours & theirs:
            raise ReceiptRefused("receipt_shared_key", expected="session keys of no party")
        return "the session's keys are well-formed and no party's"

    checks.attempt("keys", "session", refuse_shared_keys, str)


def _record_approvals(checks: AuditChecklist, facts: RunFacts | None) -> None:
    for index, role in enumerate(APPROVING_ROLES):
        if facts is None:
            checks.skip("approvals", role, _UNREADABLE)
            continue

        def refuse_unapproved(facts: RunFacts = facts, index: int = index, role: str = role) -> str:
            # Expiry as of the run's own slot: parties hold it by their clocks when they grant.
            approval = verify_approval(
                facts.approvals[index], facts.plan, parse_time(facts.started_slot)
            )
            if approval.role != role:
                raise ReceiptRefused("receipt_approval_order", expected=role, got=approval.role)
            if max(facts.run, facts.runs_spent) > approval.max_runs:
                raise ReceiptRefused(
                    "receipt_run_past_max",
                    expected=f"at most {approval.max_runs} runs approved by the {role}",
                    got=f"run {facts.run}, {facts.runs_spent} spent",
                )
            name = facts.plan.party(role).name
            return f"{name!r} approved exactly this plan, at most {approval.max_runs} runs"

        checks.attempt("approvals", role, refuse_unapproved, str)


def _record_policies(
    checks: AuditChecklist, facts: RunFacts | None, sources: AuditSources, now: datetime
) -> Judge:
    """Record whether the policies at hand are the plan's, and give what to judge evidence by."""
    pinned = (
        {}
        if facts is None
        else {
            "attestation_policy": facts.plan.attestation_policy,
            "reference_values": facts.plan.reference_values,
        }
    )
    own = {"attestation_policy": sources.policy, "reference_values": sources.reference_values}
    parsers: dict[str, Callable[[bytes], Any]] = {
        "attestation_policy": parse_policy,
        "reference_values": parse_reference_values,
    }
    options = {"attestation_policy": "--policy", "reference_values": "--reference-values"}
    used: dict[str, Any] = dict.fromkeys(own)
    for name, given in own.items():
        data = given if given is not None else sources.documents.get(pinned.get(name, ""))
        if not pinned:
            checks.skip("policies", name, _UNREADABLE)
        elif data is None:
            checks.skip("policies", name, f"not at hand: give {options[name]} FILE")
        else:

            def refuse_other(data: bytes = data, name: str = name) -> str:
                used[name] = parsers[name](data)
                if not hmac.compare_digest(digest_bytes(data), pinned[name]):
                    raise ReceiptRefused(
                        "audit_policy_differs",
                        expected=pinned[name],
                        got=digest_bytes(data),
                        hint="the parties agreed on another one than yours; the evidence was "
                        "judged by yours",
                    )
                return f"the plan's, sha256:{pinned[name][:16]}…"

            checks.attempt("policies", name, refuse_other, str)
    return Judge(
        roots=sources.roots,
        policy=used["attestation_policy"],
        reference_values=used["reference_values"],
        now=now,
        from_beside=sources.documents_beside and None in (sources.policy, sources.reference_values),
    )


def _record_result_policy(
    checks: AuditChecklist, facts: RunFacts | None, sources: AuditSources
) -> ResultPolicy | None:
    if facts is None:
        checks.skip("policies", "result_policy", _UNREADABLE)
        return None
    data = sources.documents.get(facts.plan.result_policy)
    if data is None:
        checks.skip("policies", "result_policy", "not at hand: give --plan DIR")
        return None
    return checks.attempt(
        "policies",
        "result_policy",
        lambda: parse_result_policy(data),
        lambda found: f"the plan's, sha256:{found.digest[:16]}…",
    )


def _record_session_evidence(
    checks: AuditChecklist, facts: RunFacts | None, judge: Judge
) -> list[AttestationResult]:
    if facts is None:
        checks.skip("evidence", "complete", _UNREADABLE)
        for role in APPROVING_ROLES:
            skip_evidence(checks, f"evidence:{role}", _UNREADABLE)
        return []
    shown = {entry.label: entry for entry in facts.evidence}
    results = []

    def refuse_gaps() -> str:
        missing = sorted(set(APPROVING_ROLES) - set(shown))
        nonces = {entry.nonce for entry in facts.evidence}
        if missing or len(shown) != len(facts.evidence):
            raise ReceiptRefused(
                "receipt_evidence_missing", expected="evidence for each approving role, once"
            )
        if len(nonces) != len(facts.evidence):
            raise ReceiptRefused("receipt_nonce_reused", expected="a nonce for each verifier")
        return f"answers the nonces of {', '.join(sorted(shown))}"

    checks.attempt("evidence", "complete", refuse_gaps, str)
    for label in (*APPROVING_ROLES, *sorted(set(shown) - set(APPROVING_ROLES))):
        entry = shown.get(label)
        if entry is None:
            skip_evidence(checks, f"evidence:{label}", "the receipt holds none")
            continue
        binding = compute_binding(facts.binding_inputs(entry.label, entry.nonce))
        result = record_evidence(checks, f"evidence:{label}", entry.evidence, binding, judge)
        results += [] if result is None else [result]
    return results


def _record_party_evidence(
    checks: AuditChecklist, facts: RunFacts | None, sources: AuditSources, judge: Judge
) -> list[AttestationResult]:
    if facts is None:
        checks.skip("party_evidence", "complete", _UNREADABLE)
        return []
    demanded = {role: d for role, d in facts.plan.party_evidence.items() if d is not None}
    shown = sorted(entry.role for entry in facts.party_evidence)

    def refuse_other_set() -> str:
        if shown != sorted(demanded):
            raise ReceiptRefused(
                "receipt_party_evidence",
                expected=f"party evidence of {', '.join(sorted(demanded)) or 'nobody'}",
                got=", ".join(shown) or "nobody",
            )
        return f"the plan asks it of {', '.join(shown) or 'nobody'}"

    checks.attempt("party_evidence", "complete", refuse_other_set, str)
    results = []
    for entry in facts.party_evidence:
        demand = demanded.get(entry.role)
        if demand is None:
            continue
        result = record_evidence(
            checks,
            f"party_evidence:{entry.role}",
            entry.evidence,
            facts.party_binding(entry),
            _party_judge(checks, entry.role, demand, sources, judge),
        )
        results += [] if result is None else [result]
    return results


def _party_judge(
    checks: AuditChecklist, role: str, demand: EvidenceDemand, sources: AuditSources, judge: Judge
) -> Judge:
    """By what a party's own evidence is judged: always the documents that the plan pins."""
    none = replace(judge, policy=None, reference_values=None, from_beside=sources.documents_beside)
    policy = sources.documents.get(demand.policy)
    references = sources.documents.get(demand.reference_values)
    if policy is None or references is None:
        return none
    parsed = checks.attempt(
        f"party_evidence:{role}",
        "documents",
        lambda: (parse_policy(policy), parse_reference_values(references)),
        lambda _: f"the plan's, sha256:{demand.policy[:16]}… and {demand.reference_values[:16]}…",
    )
    if parsed is None:
        return none
    return replace(none, policy=parsed[0], reference_values=parsed[1])


def _record_closing(
    checks: AuditChecklist, receipt: Receipt | None, judge: Judge
) -> list[AttestationResult]:
    if receipt is None:
        skip_evidence(checks, "closing", _UNREADABLE)
        return []
    binding = compute_binding(receipt.closing_inputs)
    result = record_evidence(checks, "closing", receipt.closing_evidence, binding, judge)
    return [] if result is None else [result]


def describe_missing(sources: AuditSources) -> list[str]:
    """Which options would let more checks run."""
    options = {
        "roots": "--roots FILE",
        "policy": "--policy FILE",
        "reference_values": "--reference-values FILE",
        "result_policy": "--plan DIR",
    }
    return [
        options[name] for name, origin in sources.origins.items() if origin in (MISSING, SHARED)
    ]
