"""Requests of the service, as domain types; `plan` is the plan's digest in hex."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlanRequest:
    """A request about the plan as a whole."""

    plan: str


@dataclass(frozen=True)
class PayloadRequest:
    """A plan and one byte string: a nonce, an approval, evidence or a grant."""

    plan: str
    payload: bytes


@dataclass(frozen=True)
class ArtifactRequest:
    """A plan and one of its artifacts."""

    plan: str
    artifact: str


@dataclass(frozen=True)
class SegmentRequest:
    """One segment of one stream of an artifact."""

    plan: str
    artifact: str
    stream: int
    segment: int


@dataclass(frozen=True)
class UploadOpen:
    """The first message of an upload: the artifact and its index.json."""

    plan: str
    artifact: str
    index: bytes


@dataclass(frozen=True)
class RunRequest:
    """One run of a plan, counted from 1."""

    plan: str
    run: int


@dataclass(frozen=True)
class ReleaseRequest:
    """One view of one run."""

    plan: str
    run: int
    view: str


AnyRequest = (
    PlanRequest
    | PayloadRequest
    | ArtifactRequest
    | SegmentRequest
    | UploadOpen
    | RunRequest
    | ReleaseRequest
)
