"""A real receipt, and what somebody with more or less of its keys can make of it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from enclave.clients.auditor.audit import audit_receipt
from enclave.clients.auditor.report import FAILED, VERIFIED, AuditReport
from enclave.clients.auditor.sources import FROM_PLAN, GIVEN, AuditSources
from enclave.clients.party.plan_directory import PlanDirectory
from enclave.core.binding import compute_binding
from enclave.core.budget import compute_budget
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.dsse import sign_envelope
from enclave.core.hpke import generate_private, public_bytes
from enclave.core.receipt import close_receipt, closing_inputs
from enclave.core.release import parse_result, release_result, seal_release
from enclave.core.result_policy import parse_result_policy
from enclave.core.run_facts import RunFacts, SealedRelease, SessionEvidence, SessionKeys, WipeFacts
from enclave.core.signing_key import print_signing_key
from enclave.core.statement import Statement
from enclave.core.times import print_slot
from enclave.core.vocabulary import APPROVING_ROLES, ENCLAVE_RUN_TYPE
from tests.attacks.documents import frame_with
from tests.attacks.scene import ISOLATION, Stage

Predicate = dict[str, Any]


@dataclass(frozen=True)
class MadeReceipt:
    """A receipt with genuine evidence, approvals and sealed views; and its signing key."""

    stage: Stage
    signing_key: ec.EllipticCurvePrivateKey
    facts: RunFacts

    @property
    def predicate(self) -> Predicate:
        """What the receipt states, to be edited."""
        return json.loads(print_canonical(self.facts.to_json()))  # type: ignore[no-any-return]

    def honest(self) -> bytes:
        return self.signed(self.predicate, quote=True)

    def signed(
        self, predicate: Predicate, key: ec.EllipticCurvePrivateKey | None = None, *, quote: bool
    ) -> bytes:
        """Signed with a session key, whatever it says.

        key: the session's own if None: it leaked, or the enclave lies.  quote: whether the
        machine gives closing evidence over it; if not, that of the honest receipt is kept.
        """
        statement = print_statement(predicate)
        envelope = sign_envelope(statement, key or self.signing_key)
        over = statement if quote else print_statement(self.predicate)
        binding = compute_binding(closing_inputs(self.facts, over))
        closing = self.stage.scene.genuine.collect_evidence(binding)
        return close_receipt(envelope, closing.to_bytes())


def print_statement(predicate: Predicate) -> bytes:
    """A statement whose subjects are right for whatever the predicate says."""
    plan = base64.b64decode(predicate["plan"])
    run = digest_bytes(print_canonical(predicate))
    subject = (("plan", digest_bytes(plan)), ("run", run))
    return Statement(subject, ENCLAVE_RUN_TYPE, predicate).to_bytes()


def make_receipt(stage: Stage) -> MadeReceipt:
    """As a run makes it, with a signing key that is at hand."""
    scene = stage.scene
    plan, policy = scene.directory.plan, parse_result_policy(scene.directory.result_policy)
    signing_key = ec.generate_private_key(ec.SECP256R1())
    session, slot = os.urandom(16).hex(), print_slot(scene.now, policy.slot_seconds)
    parsed = parse_result(frame_with("0.5"), plan, policy)
    terms: dict[str, Any] = {"plan": plan, "policy": policy}
    views = release_result(parsed, session=session, run=1, slot=slot, **terms)
    facts = RunFacts(
        plan=plan,
        session=session,
        run=1,
        keys=SessionKeys(
            scene.identity.spki_sha256,
            public_bytes(generate_private()),
            print_signing_key(signing_key.public_key()),
        ),
        approvals=tuple(stage.approval(role) for role in APPROVING_ROLES),
        evidence=(),
        party_evidence=(),
        engine={"torch": "2.13.0", "device": "cpu"},
        isolation=ISOLATION,
        controls=("null_answer", "oracle"),
        completed=parsed.completed,
        failed=parsed.failed,
        wipe=WipeFacts(12, 4096),
        releases=tuple(
            SealedRelease(each.view, each.role, each.digest, len(each.sealed))
            for each in seal_release(views, **terms)
        ),
        bits=compute_budget(plan, policy).bits_per_run,
        runs_spent=1,
        started_slot=slot,
        finished_slot=slot,
    )
    evidence = tuple(_evidence(stage, facts, role) for role in APPROVING_ROLES)
    return MadeReceipt(stage, signing_key, replace(facts, evidence=evidence))


def _evidence(stage: Stage, facts: RunFacts, role: str) -> SessionEvidence:
    nonce = hashlib.sha256(role.encode()).digest()
    binding = compute_binding(facts.binding_inputs(role, nonce))
    return SessionEvidence(role, nonce, stage.scene.genuine.collect_evidence(binding).to_bytes())


def audit(
    stage: Stage, data: bytes, directory: PlanDirectory | None = None, *, knows_plan: bool = True
) -> AuditReport:
    """The audit of somebody who has the plan's documents, the roots and perhaps the plan."""
    directory = directory or stage.scene.directory
    sources = AuditSources(
        roots=stage.scene.roots,
        policy=None,
        reference_values=None,
        documents=directory.documents,
        origins=dict.fromkeys(("policy", "reference_values", "result_policy"), FROM_PLAN)
        | {"roots": GIVEN},
        expected_plan=directory.plan.digest if knows_plan else None,
    )
    return audit_receipt("receipt.json", data, sources, now=stage.scene.now)


def refuse_audit(stage: Stage, data: bytes, directory: PlanDirectory | None = None) -> None:
    """Raise what the audit found first; nothing if it found everything verified."""
    report = audit(stage, data, directory)
    if report.verdict == FAILED:
        assert report.first_error is not None
        raise report.first_error
    assert report.verdict == VERIFIED


def alterations(value: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Every way to alter one leaf of a JSON value: (path of the leaf, the whole value altered).

    Base64 of a JSON object is opened, so that leaves of embedded documents are reached too.
    """
    if isinstance(value, Mapping):
        return [
            ((key, *path), {**value, key: altered})
            for key, inner in value.items()
            for path, altered in alterations(inner)
        ]
    if isinstance(value, list):
        return [
            ((str(index), *path), [*value[:index], altered, *value[index + 1 :]])
            for index, inner in enumerate(value)
            for path, altered in alterations(inner)
        ]
    embedded = _embedded(value)
    if embedded is not None:
        return [(path, _print_embedded(altered)) for path, altered in alterations(embedded)]
    return [((), _altered(value))]


def without_one_key(value: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Every way to leave one key of an object out, and to add one that nobody knows."""
    if isinstance(value, list):
        return [
            ((str(index), *path), [*value[:index], altered, *value[index + 1 :]])
            for index, inner in enumerate(value)
            for path, altered in without_one_key(inner)
        ]
    embedded = _embedded(value)
    if embedded is not None:
        return [(path, _print_embedded(altered)) for path, altered in without_one_key(embedded)]
    if not isinstance(value, Mapping):
        return []
    found: list[tuple[tuple[str, ...], Any]] = [(("+",), {**value, "zz_unknown": 1})]
    for key, inner in value.items():
        found.append(((f"-{key}",), {k: v for k, v in value.items() if k != key}))
        found += [((key, *path), {**value, key: v}) for path, v in without_one_key(inner)]
    return found


def _embedded(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("ey"):  # base64 of `{"`
        return None
    try:
        return json.loads(base64.b64decode(value, validate=True))
    except ValueError:
        return None


def _print_embedded(value: Any) -> str:
    return base64.b64encode(print_canonical(value)).decode()


def _altered(value: Any) -> Any:
    """Another value of the same form, as innocent as possible."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return {}
    if set(value) <= set("0123456789abcdef") and len(value) >= 32:
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    if len(value) >= 64:
        data = bytearray(base64.b64decode(value))
        data[-1] ^= 0x01
        return base64.b64encode(data).decode()
    if value.endswith("Z") and value[:4].isdigit():
        return f"{int(value[:4]) + 1}{value[4:]}"
    if value.isdigit():
        return str(int(value) + 1)
    return value[:-1] + ("x" if value[-1] != "x" else "y")


Edit = Callable[[Predicate], object]


def lie(stage: Stage, edit: Edit, *, quote: bool = True) -> Callable[[], None]:
    """The enclave itself lies: signed with the session's key, and quoted."""
    receipt = make_receipt(stage)
    refuse_audit(stage, receipt.honest())
    predicate = receipt.predicate
    edit(predicate)
    data = receipt.signed(predicate, quote=quote)
    return lambda: refuse_audit(stage, data)
