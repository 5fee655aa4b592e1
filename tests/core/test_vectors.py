"""The vectors in tests/vectors/core: expected value or expected refusal, all counted."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from enclave.core.approval import verify_approvals
from enclave.core.binding import BindingInputs, compute_binding, gpu_nonce, party_binding
from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.errors import Refusal
from enclave.core.grant import parse_grant
from enclave.core.party import parse_party
from enclave.core.plan import parse_plan
from enclave.core.receipt import parse_receipt, verify_receipt_envelope
from enclave.core.release_view import parse_view
from enclave.core.result_frame import parse_result
from enclave.core.result_policy import parse_result_policy
from enclave.core.times import parse_time
from tests.core.document_vectors import apply
from tests.core.test_binding import by_the_page
from tests.core.view_vectors import view_cases

VECTORS = Path(__file__).parents[1] / "vectors" / "core"
ROOT = Path(__file__).parents[2]
COUNTS = {"binding": 22, "documents": 74, "approvals": 20, "frames": 37, "views": 15, "receipts": 9}
PARSERS: dict[str, Callable[[bytes], Any]] = {
    "party": parse_party,
    "plan": parse_plan,
    "result_policy": parse_result_policy,
    "grant": parse_grant,
}
Case = dict[str, Any]


def load(name: str) -> Case:
    loaded: Case = json.loads((VECTORS / f"{name}.json").read_text())
    return loaded


FILES = {name: load(name) for name in COUNTS}


def cases(name: str) -> Any:
    return pytest.mark.parametrize(
        "case", FILES[name]["cases"], ids=lambda c: f"{c.get('kind', name)}: {c['name']}"
    )


def raw(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def refused(case: Case, action: Callable[[], Any]) -> None:
    with pytest.raises(Refusal) as caught:
        action()
    assert caught.value.code == case["error"], str(caught.value)


def test_every_vector_is_found() -> None:
    assert {path.stem for path in VECTORS.glob("*.json")} == set(COUNTS)
    for name, count in COUNTS.items():
        assert len(FILES[name]["cases"]) == count, name
        assert FILES[name]["page"].startswith("docs/spec/")
        assert sum("error" not in case for case in FILES[name]["cases"]) >= 1
    assert len(FILES["binding"]["party_cases"]) == 2


def test_no_private_key_is_in_them() -> None:
    for path in VECTORS.glob("*.json"):
        assert "PRIVATE" not in path.read_text()


def inputs(given: Case) -> BindingInputs:
    return BindingInputs(
        given["plan"],
        given["session"],
        bytes.fromhex(given["tls_spki_sha256"]),
        raw(given["hpke_key"]),
        raw(given["signing_key"]),
        tuple((label, bytes.fromhex(nonce)) for label, nonce in given["nonces"]),
    )


@cases("binding")
def test_binding(case: Case) -> None:
    if "error" in case:
        refused(case, lambda: inputs(case["inputs"]))
        return
    binding = compute_binding(inputs(case["inputs"]))
    assert binding.hex() == case["binding"] == by_the_page(inputs(case["inputs"])).hex()
    assert gpu_nonce(binding).hex() == case["gpu_nonce"]


@pytest.mark.parametrize("case", FILES["binding"]["party_cases"], ids=lambda c: c["name"])
def test_party_binding(case: Case) -> None:
    got = party_binding(
        case["plan"],
        case["session"],
        case["role"],
        raw(case["signing_key"]),
        bytes.fromhex(case["challenge"]),
    )
    assert got.hex() == case["binding"]


@cases("documents")
def test_documents(case: Case) -> None:
    if "bytes" in case:
        data = raw(case["bytes"])
    else:
        data = print_canonical(apply(FILES["documents"]["bases"][case["kind"]], case["ops"]))
    parse = PARSERS[case["kind"]]
    if "error" in case:
        refused(case, lambda: parse(data))
        return
    assert parse(data).to_bytes() == data
    assert digest_bytes(data) == case["sha256"]


@cases("approvals")
def test_approvals(case: Case) -> None:
    plan = parse_plan(raw(FILES["approvals"]["plan"]))
    now = parse_time(FILES["approvals"]["now"])
    envelopes = [raw(envelope) for envelope in case["envelopes"]]
    if "error" in case:
        refused(case, lambda: verify_approvals(envelopes, plan, now))
        return
    assert verify_approvals(envelopes, plan, now).max_runs == case["max_runs"]


@cases("frames")
def test_frames(case: Case) -> None:
    plan = parse_plan(raw(FILES["frames"]["plan"]))
    policy = parse_result_policy(raw(FILES["frames"]["policy"]))
    if "error" in case:
        refused(case, lambda: parse_result(raw(case["frame"]), plan, policy))
        return
    assert dict(parse_result(raw(case["frame"]), plan, policy).steps) == case["steps"]


@cases("views")
def test_views(case: Case) -> None:
    policy = parse_result_policy(raw(FILES["views"]["policy"]))
    data, name = raw(case["bytes"]), FILES["views"]["view"]
    if "error" in case:
        refused(case, lambda: parse_view(data, name, policy))
        return
    view = parse_view(data, name, policy)
    assert [metric.steps for metric in view.metrics] == case["steps"]
    assert view.to_bytes(policy.release_bytes) == data


def test_views_are_what_their_writer_writes() -> None:
    assert FILES["views"] == view_cases()


@cases("receipts")
def test_receipts(case: Case) -> None:
    data = raw(case["receipt"])
    if "error" in case:
        refused(case, lambda: verify_receipt_envelope(parse_receipt(data)))
        return
    assert verify_receipt_envelope(parse_receipt(data)).receipt.to_bytes() == data
