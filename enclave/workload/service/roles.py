"""Who may call what: one row an RPC."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enclave.core.errors import SessionRefused
from enclave.core.grant import parse_grant
from enclave.core.plan import Plan
from enclave.core.vocabulary import APPROVING_ROLES, ARTIFACT_OWNER, ROLES
from enclave.wire import methods
from enclave.wire.requests import (
    AnyRequest,
    ArtifactRequest,
    PayloadRequest,
    ReleaseRequest,
    SegmentRequest,
    UploadOpen,
)

ALLOWED_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        methods.GET_SESSION.name: ROLES,
        methods.GET_PLAN.name: ROLES,
        methods.ATTEST.name: ROLES,
        methods.GET_FINDINGS.name: ROLES,
        methods.SUBMIT_APPROVAL.name: APPROVING_ROLES,
        methods.SUBMIT_PARTY_EVIDENCE.name: APPROVING_ROLES,
        methods.RENEW_SESSION.name: APPROVING_ROLES,
        methods.START_RUN.name: APPROVING_ROLES,
        methods.GET_UPLOAD_STATUS.name: APPROVING_ROLES,
        methods.UPLOAD.name: APPROVING_ROLES,
        methods.FORGET_SEGMENT.name: APPROVING_ROLES,
        methods.SUBMIT_GRANT.name: APPROVING_ROLES,
        methods.WATCH_RUN.name: ROLES,
        methods.GET_RELEASE.name: ROLES,
        methods.GET_RECEIPT.name: ROLES,
    }
)
"""The widest set an RPC; artifacts and views narrow it."""


def refuse_wrong_role(method: str, role: str, plan: Plan, request: AnyRequest) -> None:
    """Refuse `role_forbidden` unless the role may make this very request."""
    allowed = ALLOWED_ROLES[method]
    if role in allowed:
        allowed = _narrow(method, plan, request, allowed)
    if role not in allowed:
        raise SessionRefused("role_forbidden", expected=" or ".join(allowed) or "nobody", got=role)


def _narrow(
    method: str, plan: Plan, request: AnyRequest, allowed: tuple[str, ...]
) -> tuple[str, ...]:
    if isinstance(request, (ArtifactRequest, SegmentRequest, UploadOpen)):
        return (ARTIFACT_OWNER[request.artifact],)
    if isinstance(request, ReleaseRequest):
        # An unknown view has no recipient: it reads the same as a foreign one.
        return tuple(plan.views.get(request.view, ()))
    if method == methods.SUBMIT_GRANT.name and isinstance(request, PayloadRequest):
        return (ARTIFACT_OWNER[parse_grant(request.payload).artifact],)
    return allowed
