"""Attacks on the channel: every RPC with the wrong certificate, over real mTLS on loopback."""

from __future__ import annotations

from typing import Any

from enclave.core.errors import SessionRefused, UploadRefused
from enclave.core.sealed.stream import StreamLayout
from enclave.wire.errors import ChannelRefused
from enclave.wire.transport import MAX_REQUEST_BYTES
from tests.attacks.acceptance import EVALUATOR, MODEL_OWNER, NETWORK, Step, Table
from tests.attacks.scene import Stage
from tests.sealed.artifacts import rewrite_index
from tests.wire.enclaves import Enclave, write_sealed_directory
from tests.wire.test_calls import CALLS, ROLES, delegate

ATTACKS = Table()
EACH_RPC = "client certificate of the wrong role on each RPC"


def call_as(stage: Stage, call: str, role: str) -> Step:
    """One RPC with the genuine certificate of a party that may not make it."""
    enclave, action = stage.scene.wire, CALLS[call][0]
    client = enclave.client(enclave.world.parties[role])
    stage.closing.callback(client.close)
    return lambda: action(client)


def call_as_delegate(stage: Stage, call: str) -> Step:
    """One RPC with a certificate that the owner's certificate issued: TLS itself lets it in."""
    enclave, action = stage.scene.wire, CALLS[call][0]
    stranger = enclave.world.stranger
    leaf = delegate(enclave.world.owner, stranger.tls_key, "Delegate")
    client = enclave.client(stranger, certificate=leaf)
    stage.closing.callback(client.close)
    return lambda: action(client)


for _call, (_, _allowed) in CALLS.items():
    _forbidden = [role for role in ROLES if role not in _allowed]
    if _forbidden:
        # The other party if it may not, else somebody who only looks on.
        ATTACKS.add(
            f"rpc-{_call}-as-{_forbidden[0]}",
            by=EVALUATOR if _forbidden[0] == "evaluator" else MODEL_OWNER,
            covers=EACH_RPC,
            error=SessionRefused,
            code="role_forbidden",
        )(lambda stage, call=_call, role=_forbidden[0]: call_as(stage, call, role))
    else:
        ATTACKS.add(
            f"rpc-{_call}-as-delegate",
            by=NETWORK,
            covers=EACH_RPC,
            error=SessionRefused,
            code="peer_unknown",
        )(lambda stage, call=_call: call_as_delegate(stage, call))


@ATTACKS.add(
    "rpc-unknown-certificate", by=NETWORK, error=ChannelRefused, code="enclave_refused_connection"
)
def rpc_unknown_certificate(stage: Stage) -> Step:
    enclave: Enclave = stage.scene.wire
    client = enclave.client(enclave.world.stranger)
    stage.closing.callback(client.close)
    return client.start_run  # not repeated, so refused at once


@ATTACKS.add("rpc-plan-of-others", by=EVALUATOR, error=SessionRefused, code="peer_unknown")
def rpc_plan_of_others(stage: Stage) -> Step:
    """A party of one plan asks about another, to learn whether it exists."""
    enclave: Enclave = stage.scene.wire
    client = enclave.client(enclave.world.evaluator, plan="ee" * 32)
    stage.closing.callback(client.close)
    return client.get_session


@ATTACKS.add("rpc-oversize", by=EVALUATOR, error=ChannelRefused, code="message_too_large")
def rpc_oversize(stage: Stage) -> Step:
    enclave: Enclave = stage.scene.wire
    client = enclave.client(enclave.world.evaluator)
    stage.closing.callback(client.close)
    return lambda: client.submit_approval(b"x" * (MAX_REQUEST_BYTES + 1))


def upload(stage: Stage, **index: Any) -> Step:
    """The evaluator opens an upload of its suite with a public index of its own making."""
    enclave: Enclave = stage.scene.wire
    folder = stage.folder / "sealed"
    write_sealed_directory(folder, "suite", [200, 200])
    rewrite_index(folder, **index)
    client = enclave.client(enclave.world.evaluator)
    stage.closing.callback(client.close)
    data = (folder / "index.json").read_bytes()
    return lambda: list(client.exchange_upload("suite", data, iter(())))


@ATTACKS.add("upload-past-the-plan", by=EVALUATOR, error=UploadRefused, code="upload_too_large")
def upload_past_the_plan(stage: Stage) -> Step:
    """An index that announces more than the plan allows: the disk would fill."""
    return upload(stage, streams=(200, StreamLayout(2**30).ciphertext_size))


@ATTACKS.add(
    "upload-as-another-artifact",
    by=EVALUATOR,
    error=UploadRefused,
    code="upload_commitment_mismatch",
)
def upload_as_another_artifact(stage: Stage) -> Step:
    """The bundle's ciphertext in the suite's place."""
    return upload(stage, artifact="bundle")
