"""Refusals cross the channel as what they were; nothing untyped does."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation.errors import (
    AttestationError,
    Check,
    CheckState,
    EndorsementUnavailable,
    Finding,
    MalformedEvidence,
    MalformedPolicy,
    PolicyRefused,
    SignatureInvalid,
)
from enclave.clients.channel.client import EnclaveClient
from enclave.core import errors as core_errors
from enclave.core.errors import ApprovalRefused, Refusal
from enclave.wire.errors import ChannelRefused
from enclave.wire.messages import RefusalDetail
from enclave.wire.refusals import MAX_STATUS_BYTES, describe_refusal, print_status, rebuild_error
from tests.wire.enclaves import Enclave, WireWorld, outcome

TEXTS = {"expected": "the planned digest", "got": "another – ünïcode", "hint": "approve again"}


@pytest.mark.parametrize("stage", sorted(core_errors.STAGES))
def test_each_refusal_class(enclave_server: Enclave, owner: EnclaveClient, stage: str) -> None:
    raised = core_errors.STAGES[stage]("some_rule", **TEXTS)
    enclave_server.facade.refusals["submit_approval"] = raised
    with pytest.raises(Refusal) as caught:
        owner.submit_approval(b"x")
    assert type(caught.value) is type(raised)
    assert caught.value.as_json() == raised.as_json()


def findings(count: int) -> tuple[Finding, ...]:
    return tuple(
        Finding(f"check_{n}", f"FIELD_{n}", "e" * 200, "g" * 200, "field_differs")
        for n in range(count)
    )


@pytest.mark.parametrize(
    "kind",
    [MalformedEvidence, SignatureInvalid, EndorsementUnavailable, PolicyRefused, MalformedPolicy],
)
def test_attestation_error_in_full(
    enclave_server: Enclave, owner: EnclaveClient, kind: type[AttestationError]
) -> None:
    """More findings than a status can carry: the client fetches the rest by itself."""
    raised = kind("field_differs", findings(60), (Check("nonce", CheckState.NOT_CHECKED),))
    enclave_server.facade.refusals["submit_party_evidence"] = raised
    with pytest.raises(AttestationError) as caught:
        owner.submit_party_evidence(b"evidence")
    assert type(caught.value) is kind
    assert caught.value.exit_code == kind.exit_code
    assert caught.value.as_json() == raised.as_json()


def test_findings_are_the_callers_own(
    enclave_server: Enclave, owner: EnclaveClient, wire_world: WireWorld
) -> None:
    assert owner.get_findings() is None
    enclave_server.facade.refusals["submit_approval"] = ApprovalRefused("approval_foreign")
    assert outcome(lambda: owner.submit_approval(b"x")) == "approval_foreign"
    assert owner.get_findings() == RefusalDetail("approval", "approval_foreign")
    with enclave_server.client(wire_world.evaluator) as evaluator:
        assert evaluator.get_findings() is None


def test_unexpected_exception_tells_nothing(
    enclave_server: Enclave, owner: EnclaveClient, caplog: pytest.LogCaptureFixture
) -> None:
    enclave_server.facade.refusals["submit_approval"] = RuntimeError("CANARY in the message")
    enclave_server.facade.refusals["watch_run"] = KeyError("CANARY in the message")
    with caplog.at_level(logging.DEBUG):
        for action in (lambda: owner.submit_approval(b"x"), lambda: list(owner.watch_run(1))):
            with pytest.raises(ChannelRefused) as caught:
                action()
            assert caught.value.as_json() == ChannelRefused("internal").as_json()
    detail = owner.get_findings()
    assert detail == RefusalDetail("channel", "internal")
    assert "CANARY" not in caplog.text
    assert "RuntimeError" in caplog.text


@given(
    texts=st.lists(st.text(max_size=5000), min_size=3, max_size=3),
    count=st.integers(0, 80),
    finding=st.text(max_size=600),
)
def test_status_stays_small(texts: list[str], count: int, finding: str) -> None:
    many = tuple(Finding(finding, finding, finding, finding, "c") for _ in range(count))
    for error in (
        ApprovalRefused("some_rule", expected=texts[0], got=texts[1], hint=texts[2]),
        PolicyRefused("some_rule", many),
    ):
        _, status = print_status(describe_refusal(error))
        assert status.ByteSize() <= MAX_STATUS_BYTES


def test_foreign_refusals_stay_refusals() -> None:
    assert type(rebuild_error(RefusalDetail("brand_new", "some_rule"))) is Refusal
    malformed = rebuild_error(RefusalDetail("approval", "Not A Code"))
    assert isinstance(malformed, ChannelRefused)
    assert malformed.code == "refusal_malformed"
    unknown = rebuild_error(RefusalDetail("attestation", "x", attestation_stage="brand_new"))
    assert type(unknown) is AttestationError
