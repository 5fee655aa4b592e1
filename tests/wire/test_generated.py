"""The committed code is what the protos generate, and any gRPC client can speak to the server."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from enclave.wire.generate import generate_wire_code
from enclave.wire.generated.doubleblind.v1 import enclave_pb2_grpc, session_pb2, upload_pb2
from tests.wire.enclaves import Enclave, WireWorld, write_sealed_directory
from tests.wire.test_server import raw_channel

ROOT = Path(__file__).resolve().parents[2]


def test_regenerate_and_compare(tmp_path: Path) -> None:
    committed = ROOT / "enclave" / "wire" / "generated"
    written = generate_wire_code(ROOT / "protos", tmp_path / "generated")
    names = {path.relative_to(tmp_path / "generated") for path in written}
    assert len(names) >= 12
    kept = {
        path.relative_to(committed)
        for path in committed.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert kept == names
    for name in sorted(names):
        assert (committed / name).read_text() == (tmp_path / "generated" / name).read_text(), name


def test_generated_stub(enclave_server: Enclave, wire_world: WireWorld, tmp_path: Path) -> None:
    """A client made from the protos alone: a call, a typed refusal, and an upload."""
    plan = bytes.fromhex(wire_world.plan.digest)
    index = write_sealed_directory(tmp_path / "sealed", "model", [3000, 1_500_000])
    with raw_channel(enclave_server, wire_world.owner) as channel:
        stub = enclave_pb2_grpc.EnclaveStub(channel)
        session = stub.GetSession(session_pb2.GetSessionRequest(plan=plan), timeout=5)
        assert session.plan == plan
        with pytest.raises(grpc.RpcError):
            stub.GetUploadStatus(
                upload_pb2.GetUploadStatusRequest(plan=plan, artifact="suite"), timeout=5
            )
        whole = (tmp_path / "sealed" / "00000001.sealed").read_bytes()
        requests = [
            upload_pb2.UploadRequest(
                open=upload_pb2.UploadOpen(plan=plan, artifact="model", index=index)
            ),
            # Fields in another order than the fast path's: still protobuf.
            upload_pb2.UploadRequest.FromString(
                upload_pb2.UploadRequest(
                    ciphertext=(tmp_path / "sealed" / "00000000.sealed").read_bytes()
                ).SerializeToString()
                + upload_pb2.UploadRequest(segment=0, stream=0).SerializeToString()
            ),
            upload_pb2.UploadRequest(stream=1, segment=1, ciphertext=whole[2**20 :]),
            upload_pb2.UploadRequest(stream=1, segment=0, ciphertext=whole[: 2**20]),
        ]
        replies = list(stub.Upload(iter(requests), timeout=30))
        assert replies[0].status.missing_segments == 3
        assert replies[-1].acknowledged.missing_segments == 0
    store = enclave_server.facade.upload_store(wire_world.plan.digest, "model")
    with (
        store.open_source() as source,
        open(source.descriptor(1), "rb", closefd=False) as stored,
    ):
        assert stored.read() == whole
