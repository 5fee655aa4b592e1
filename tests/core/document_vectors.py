"""Vectors of documents: edits of a base document, and spellings that are not canonical."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.grant import grant_key
from tests.core.builders import World, b64, make_party
from tests.core.sessions import Session

VECTORS = Path(__file__).parents[1] / "vectors" / "core"

Case = dict[str, Any]


def add(path: str, value: Any) -> Case:
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Case:
    return {"op": "remove", "path": path}


def put(path: str, value: Any) -> Case:
    return {"op": "replace", "path": path, "value": value}


def document_cases(world: World, session: Session) -> Case:
    grant = grant_key(
        session.result,
        inputs=session.inputs,
        evidence_digest=session.bundle.digest,
        role="model_owner",
        artifact="model",
        commitment="11" * 32,
        run=1,
        key=b"k" * 32,
        salt=b"s" * 32,
    )
    bases = {
        "party": world.owner.party.to_json(),
        "plan": world.document,
        "result_policy": world.policy.to_json(),
        "grant": json.loads(grant),
    }
    twin = make_party("evaluator", "Twin").party.fields()
    metric = copy.deepcopy(bases["result_policy"]["metrics"][0])
    table: list[tuple[str, str, list[Case], str | None]] = [
        ("party", "good", [], None),
        ("party", "unknown key", [add("/note", "x")], "document_field_unknown"),
        ("party", "missing key", [remove("/name")], "document_field_missing"),
        ("party", "host role", [put("/role", "host")], "document_field_value"),
        ("party", "malformed key", [put("/signing_key", b64(b"k"))], "signing_key"),
        (
            "party",
            "short recipient key",
            [put("/recipient_key", b64(b"k"))],
            "document_field_value",
        ),
        ("party", "malformed certificate", [put("/tls_certificate", b64(b"k"))], "tls_certificate"),
        ("plan", "good", [], None),
        ("plan", "other title", [put("/title", "Another title")], None),
        ("plan", "two views", [add("/views/detail", ["evaluator"])], None),
        ("plan", "unknown key", [add("/note", "x")], "document_field_unknown"),
        ("plan", "unknown engine key", [add("/engine/top_k", 1)], "document_field_unknown"),
        ("plan", "unknown limit", [add("/limits/disk", 1)], "document_field_unknown"),
        ("plan", "missing limit", [remove("/limits/processes")], "document_field_missing"),
        ("plan", "missing policy", [remove("/result_policy")], "document_field_missing"),
        ("plan", "other type", [put("/type", "x")], "document_field_value"),
        ("plan", "no isolation", [put("/isolation/min_tier", "T0")], "document_field_value"),
        ("plan", "batch of two", [put("/engine/batch", 2)], "document_field_value"),
        ("plan", "upper hex", [put("/plan_id", "AB" * 16)], "document_field_value"),
        ("plan", "hot", [put("/engine/temperature", "2.5")], "plan_engine_temperature"),
        ("plan", "no mass", [put("/engine/top_p", "0")], "plan_engine_top_p"),
        ("plan", "answer over context", [put("/engine/max_context", 1)], "plan_engine_context"),
        ("plan", "padded decimal", [put("/engine/top_p", "1.0")], "document_field_value"),
        ("plan", "boolean count", [put("/max_runs", True)], "document_field_type"),
        ("plan", "no runs", [put("/max_runs", 0)], "document_field_value"),
        ("plan", "date only", [put("/not_after", "2026-12-31")], "document_time"),
        ("plan", "unknown role", [put("/views/summary/0", "host")], "plan_unknown_role"),
        ("plan", "absent recipient", [put("/views/summary/0", "reviewer")], "plan_view_recipient"),
        ("plan", "two evaluators", [add("/parties/-", twin)], "plan_party_not_single"),
        ("plan", "no evaluator", [remove("/parties/1")], "plan_party_not_single"),
        (
            "plan",
            "shared recipient key",
            [put("/parties/1/recipient_key", b64(world.owner.party.recipient_key))],
            "plan_party_not_distinct",
        ),
        (
            "plan",
            "shared signing key",
            [put("/parties/1/signing_key", b64(world.owner.party.signing_key))],
            "plan_party_not_distinct",
        ),
        ("plan", "shared name", [put("/parties/1/name", "owner")], "plan_party_not_distinct"),
        (
            "plan",
            "publisher without a view",
            [put("/publication/may_publish", ["auditor"])],
            "plan_publisher_without_view",
        ),
        ("result_policy", "good", [], None),
        ("result_policy", "coarser", [put("/metrics/0/step", "0.05")], None),
        ("result_policy", "unknown key", [add("/note", "x")], "document_field_unknown"),
        ("result_policy", "unknown metric key", [add("/metrics/0/x", 1)], "document_field_unknown"),
        ("result_policy", "missing step", [remove("/metrics/0/step")], "document_field_missing"),
        ("result_policy", "free text", [put("/metrics/0/kind", "text")], "document_field_value"),
        ("result_policy", "no step", [put("/metrics/0/step", "0")], "policy_metric_range"),
        ("result_policy", "uneven steps", [put("/metrics/0/step", "0.03")], "policy_metric_range"),
        ("result_policy", "ratio over 1", [put("/metrics/0/high", "2")], "policy_metric_range"),
        ("result_policy", "metric twice", [add("/metrics/-", metric)], "policy_duplicate_id"),
        ("result_policy", "no control", [put("/controls", [])], "document_field_value"),
        ("result_policy", "no metric", [put("/metrics", [])], "document_field_value"),
        (
            "result_policy",
            "baseline of itself",
            [put("/baselines/0/baseline", "truthfulqa_mc1_accuracy")],
            "policy_baseline",
        ),
        ("result_policy", "no room", [put("/release_bytes", 1023)], "document_field_value"),
        ("grant", "good", [], None),
        ("grant", "unknown key", [add("/key", "x")], "document_field_unknown"),
        ("grant", "missing run", [remove("/run")], "document_field_missing"),
        ("grant", "run zero", [put("/run", 0)], "document_field_value"),
        ("grant", "other artifact", [put("/artifact", "prompts")], "document_field_value"),
        ("grant", "short seal", [put("/sealed", b64(b"x" * 1199))], "document_field_value"),
    ]
    cases: list[Case] = []
    for kind, name, ops, error in table:
        case: Case = {"kind": kind, "name": name, "ops": ops}
        if error is None:
            case["sha256"] = digest_bytes(print_canonical(apply(bases[kind], ops)))
        else:
            case["error"] = error
        cases.append(case)
    for kind, base in bases.items():
        data = print_canonical(base)
        raw = {
            "trailing newline": (data + b"\n", "document_not_canonical"),
            "leading space": (b" " + data, "document_not_canonical"),
            "key twice": (b'{"type":"x",' + data[1:], "document_duplicate_key"),
            "truncated": (data[:-1], "document_not_json"),
            "float": (b'{"a":1.5}', "document_float"),
        }
        cases += [
            {"kind": kind, "name": name, "bytes": b64(given), "error": code}
            for name, (given, code) in raw.items()
        ]
    return {"page": "docs/spec/plan.md", "bases": bases, "cases": cases}


def apply(document: Case, ops: list[Case]) -> Case:
    """RFC 6902 add, remove and replace, without its escapes."""
    changed = copy.deepcopy(document)
    for op in ops:
        *parents, last = op["path"].split("/")[1:]
        target: Any = changed
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if isinstance(target, list) and op["op"] == "add":
            target.insert(len(target) if last == "-" else int(last), op["value"])
            continue
        key: Any = int(last) if isinstance(target, list) else last
        if op["op"] == "remove":
            del target[key]
        else:
            target[key] = op["value"]
    return changed
