"""A plan in plain language: what a party reads before it approves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from enclave.core.budget import Budget, metric_bits, refuse_over_budget
from enclave.core.canonical import digest_bytes, parse_json_object
from enclave.core.errors import DocumentRefused, PlanRefused
from enclave.core.plan import Plan
from enclave.core.result_policy import ENUM, Metric, ResultPolicy, parse_result_policy
from enclave.core.times import print_time
from enclave.core.vocabulary import ARTIFACT_OWNER, ARTIFACTS

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True)
class Section:
    """A titled list of sentences."""

    title: str
    lines: tuple[str, ...]


def print_size(size: int) -> str:
    """A size with a binary unit: exact where it is whole, else with one digit."""
    scaled, unit = float(size), 0
    while scaled >= 1024 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1024, unit + 1
    digits = 0 if scaled == int(scaled) else 1
    return f"{scaled:.{digits}f} {_UNITS[unit]}"


def _document(documents: Mapping[str, bytes], digest: str) -> bytes | None:
    data = documents.get(digest)
    if data is not None and digest_bytes(data) != digest:
        raise PlanRefused("plan_document_digest", expected=digest, got=digest_bytes(data))
    return data


def _named(documents: Mapping[str, bytes], digest: str) -> str:
    """A pinned document by its own `name`, where it has one, and its digest."""
    data = _document(documents, digest)
    if data is None:
        return f"{digest} (document not at hand: get it before you approve)"
    try:
        name = parse_json_object(data).get("name")
    except DocumentRefused:
        name = None
    printable = isinstance(name, str) and name.isprintable() and len(name) <= 80
    return f"{name!r} ({digest})" if printable else digest


def _parties(plan: Plan) -> Section:
    return Section(
        "Who takes part",
        tuple(
            f"{party.role}: {party.name!r}, signing key sha256:{party.key_id}"
            for party in plan.parties
        ),
    )


def _artifacts(plan: Plan) -> Section:
    lines = []
    for name in ARTIFACTS:
        terms = plan.artifact(name)
        lines.append(
            f"{name}: sealed by the {ARTIFACT_OWNER[name]}, commitment {terms.commitment}, "
            f"at most {print_size(terms.max_bytes)} in {terms.max_files} files"
        )
    lines.append(
        f"The bundle is eval code for {plan.bundle.environment}; both parties can read it, "
        f"its commitment's salt is {plan.bundle.salt}."
    )
    return Section("What is evaluated", tuple(lines))


def _engine(plan: Plan) -> Section:
    engine = plan.engine
    sampling = (
        "greedy decoding"
        if engine.temperature == "0"
        else f"sampling at temperature {engine.temperature}, top_p {engine.top_p}"
    )
    return Section(
        "How the model runs",
        (
            f"{engine.dtype} on {engine.threads} threads, batch {engine.batch}, "
            f"seed {engine.seed}, {sampling}",
            f"at most {engine.max_new_tokens} new tokens, context {engine.max_context} tokens",
            f"chat template sha256:{engine.template_sha256}",
        ),
    )


def _limits(plan: Plan) -> Section:
    limits = plan.limits
    return Section(
        "Limits of one run",
        (
            f"{limits.wall_seconds} s of time, {limits.cpu_seconds} s of CPU time",
            f"{print_size(limits.memory_bytes)} of memory, {print_size(limits.tmp_bytes)} of "
            f"scratch space, {limits.processes} processes, {limits.open_files} open files",
            f"at most {limits.max_samples} samples, a result of at most "
            f"{print_size(limits.result_bytes)}",
            f"isolation tier {plan.isolation.min_tier} or stronger",
        ),
    )


def _domain(metric: Metric) -> str:
    if metric.kind == ENUM:
        return f"one of {', '.join(metric.values)}"
    return f"{metric.low} to {metric.high} in steps of {metric.step}"


def _learned(plan: Plan, policy: ResultPolicy | None) -> Section:
    title = "What each role learns"
    if policy is None:
        return Section(
            title,
            (f"Unknown: result policy {plan.result_policy} is not at hand. Do not approve.",),
        )
    budget = refuse_over_budget(plan, policy)
    lines = []
    for role in sorted({role for roles in plan.views.values() for role in roles}):
        views = [view for view, roles in plan.views.items() if role in roles]
        metrics = {metric.id: metric for view in views for metric in policy.metrics_of(view)}
        bits = sum(metric_bits(metric) for metric in metrics.values())
        lines.append(f"{role}: {', '.join(metrics)} ({bits} bits a run, view {', '.join(views)})")
    for metric in policy.metrics:
        lines.append(
            f"{metric.id}: {_domain(metric)}, over at least {metric.min_n} samples, "
            f"{metric_bits(metric)} bits"
        )
    for entry in policy.baselines:
        lines.append(f"{entry.baseline} is the naive baseline of {entry.metric}.")
    for control in policy.controls:
        lines.append(f"No release unless control {control.id} is exactly {control.expected}.")
    return Section(title, (*lines, *_bits(plan, policy, budget)))


def _bits(plan: Plan, policy: ResultPolicy, budget: Budget) -> tuple[str, ...]:
    return (
        "Everyone with the receipt learns how many samples were completed and failed, and "
        f"times rounded down to {policy.slot_seconds} s.",
        "At worst, eval code that wants to smuggle gets out: "
        + " + ".join(f"{line.bits} ({line.name})" for line in budget.lines)
        + f" = {budget.bits_per_run} bits a run.",
        f"{plan.max_runs} runs: {budget.bits_total} bits of the {budget.max_bits} allowed.",
    )


def _publication(plan: Plan) -> Section:
    terms = plan.publication
    if not terms.may_publish:
        return Section("Publication", ("Nobody may publish.",))
    moment = "at release" if terms.not_before is None else f"from {print_time(terms.not_before)}"
    return Section(
        "Publication",
        (
            f"May publish what they learn, {moment}: {', '.join(terms.may_publish)}.",
            "Agreed before any score exists: nobody can veto it later.",
        ),
    )


def _proof(plan: Plan, documents: Mapping[str, bytes]) -> Section:
    lines = [
        f"The enclave must satisfy policy {_named(documents, plan.attestation_policy)}",
        f"against reference values {_named(documents, plan.reference_values)}.",
    ]
    for role, demand in plan.party_evidence.items():
        if demand is None:
            lines.append(f"The {role} shows no hardware evidence, only its signature.")
        else:
            lines.append(
                f"The {role} must show {demand.kind} evidence under policy "
                f"{_named(documents, demand.policy)} against "
                f"{_named(documents, demand.reference_values)}."
            )
    return Section("What must be proven", tuple(lines))


def explain_plan(plan: Plan, documents: Mapping[str, bytes]) -> list[Section]:
    """Explain a plan with the documents it pins, by their SHA-256 in hex.

    A pinned document that is absent is named as such; one whose bytes have
    another digest is refused (`plan_document_digest`).  A plan that exceeds
    its release budget is refused (`release_budget_exceeded`).
    """
    data = _document(documents, plan.result_policy)
    policy = None if data is None else parse_result_policy(data)
    return [
        Section(
            "Evaluation",
            (
                plan.title,
                f"plan sha256:{plan.digest}",
                f"at most {plan.max_runs} runs, valid until {print_time(plan.not_after)}",
            ),
        ),
        _parties(plan),
        _artifacts(plan),
        _engine(plan),
        _limits(plan),
        _learned(plan, policy),
        _publication(plan),
        _proof(plan, documents),
    ]
