"""Uploads through a real channel: whole, resumed, cut, refused."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from enclave.clients.channel.client import EnclaveClient, Timeouts
from enclave.clients.channel.upload import upload_artifact
from enclave.core.errors import Refusal
from enclave.core.sealed.stream import SEGMENT_BYTES
from enclave.wire.messages import SegmentRun, UploadReport, UploadStatus
from enclave.wire.segment_frame import pack_segment
from tests.core.builders import expect_refusal
from tests.wire.enclaves import (
    Enclave,
    WireWorld,
    certificate_pem,
    key_pem,
    outcome,
    write_sealed_directory,
)

MIB = SEGMENT_BYTES
STREAMS = [300, 40 * MIB + 77, 56, 3 * MIB]
TOTAL = 1 + 41 + 1 + 3


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("artifact") / "sealed"
    write_sealed_directory(directory, "model", STREAMS)
    return directory


def assert_stored(enclave: Enclave, world: WireWorld, sealed: Path) -> None:
    with enclave.facade.upload_store(world.plan.digest, "model").open_source() as source:
        for stream, size in enumerate(STREAMS):
            stored = os.pread(source.descriptor(stream), size + 1, 0)
            assert stored == (sealed / f"{stream:08d}.sealed").read_bytes()


def test_whole(
    enclave_server: Enclave, owner: EnclaveClient, wire_world: WireWorld, sealed: Path
) -> None:
    seen: list[tuple[int, int]] = []
    report = upload_artifact(
        owner, wire_world.plan, "model", sealed, lambda done, total: seen.append((done, total))
    )
    assert report == UploadReport(TOTAL, 0, sum(STREAMS))
    assert_stored(enclave_server, wire_world, sealed)
    assert seen[0] == (0, sum(STREAMS))
    assert seen[-1] == (sum(STREAMS), sum(STREAMS))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) >= 4  # acknowledged each 16 MiB
    assert owner.get_upload_status("model").is_complete
    assert ("artifact_uploaded", wire_world.plan.digest, "model") in enclave_server.facade.asked


def test_again_sends_nothing(owner: EnclaveClient, wire_world: WireWorld, sealed: Path) -> None:
    upload_artifact(owner, wire_world.plan, "model", sealed)
    report = upload_artifact(owner, wire_world.plan, "model", sealed)
    assert report == UploadReport(0, TOTAL, 0)


def test_forgotten_segment_is_sent_again(
    enclave_server: Enclave, owner: EnclaveClient, wire_world: WireWorld, sealed: Path
) -> None:
    upload_artifact(owner, wire_world.plan, "model", sealed)
    owner.forget_segment("model", 1, 40)
    assert owner.get_upload_status("model").missing == (SegmentRun(1, 40, 1),)
    report = upload_artifact(owner, wire_world.plan, "model", sealed)
    assert report == UploadReport(1, TOTAL - 1, 77)
    assert_stored(enclave_server, wire_world, sealed)


def test_concurrent_upload_is_refused(
    owner: EnclaveClient, wire_world: WireWorld, sealed: Path
) -> None:
    hold = threading.Event()

    def nothing_yet() -> Iterator[bytes]:
        hold.wait(30)
        yield from ()

    index = (sealed / "index.json").read_bytes()
    first = owner.exchange_upload("model", index, nothing_yet())
    assert isinstance(next(first), UploadStatus)
    try:
        expect_refusal(
            "upload_busy", lambda: upload_artifact(owner, wire_world.plan, "model", sealed)
        )
        assert outcome(lambda: owner.forget_segment("model", 0, 0)) == "upload_busy"
    finally:
        hold.set()
    assert list(first) == []
    assert upload_artifact(owner, wire_world.plan, "model", sealed).sent_segments == TOTAL


@pytest.mark.parametrize(
    ("stream", "segment", "size", "code"),
    [
        (0, 0, 299, "upload_segment_size"),
        (9, 0, 1, "upload_segment_unknown"),
        (1, 0, MIB, "upload_segment_present"),
    ],
)
def test_bad_segments_keep_the_good(
    owner: EnclaveClient, sealed: Path, stream: int, segment: int, size: int, code: str
) -> None:
    """What came before the refusal is durable."""
    first = (sealed / "00000001.sealed").read_bytes()[:MIB]
    messages = [pack_segment(1, 0, first), pack_segment(stream, segment, bytes(size))]
    index = (sealed / "index.json").read_bytes()
    expect_refusal(code, lambda: list(owner.exchange_upload("model", index, iter(messages))))
    status = owner.get_upload_status("model")
    assert status.missing_segments == TOTAL - 1
    assert status.missing[1] == SegmentRun(1, 1, 40)


def test_malformed_segment(owner: EnclaveClient, sealed: Path) -> None:
    index = (sealed / "index.json").read_bytes()
    for message in (b"", b"\xff\xff", pack_segment(0, 0, b"x")[:-1]):
        expect_refusal(
            "message_malformed",
            lambda message=message: list(owner.exchange_upload("model", index, iter([message]))),
        )


def test_other_commitment_is_refused_on_both_sides(
    owner: EnclaveClient, wire_world: WireWorld, tmp_path: Path
) -> None:
    index = write_sealed_directory(tmp_path / "other", "suite", [300, 80])
    expect_refusal(
        "upload_commitment_mismatch",
        lambda: upload_artifact(owner, wire_world.plan, "model", tmp_path / "other"),
    )
    expect_refusal(
        "upload_commitment_mismatch", lambda: list(owner.exchange_upload("model", index, iter(())))
    )


def test_source_shorter_than_its_index(
    owner: EnclaveClient, wire_world: WireWorld, tmp_path: Path
) -> None:
    write_sealed_directory(tmp_path / "cut", "model", [300, 3 * MIB])
    os.truncate(tmp_path / "cut" / "00000001.sealed", 2 * MIB + 5)
    upload = lambda: upload_artifact(owner, wire_world.plan, "model", tmp_path / "cut")  # noqa: E731
    expect_refusal("upload_source_changed", upload)
    (tmp_path / "cut" / "00000001.sealed").unlink()
    expect_refusal("upload_source_missing", upload)
    assert owner.get_upload_status("model").missing_segments == 1
    expect_refusal(
        "upload_source_missing",
        lambda: upload_artifact(owner, wire_world.plan, "model", tmp_path / "nowhere"),
    )


def test_more_missing_runs_than_a_status_lists(
    owner: EnclaveClient, wire_world: WireWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enclave.workload.service.segment_layout.MAX_MISSING_RUNS", 2)
    from enclave.workload.service.segment_layout import SegmentLayout

    monkeypatch.setattr(SegmentLayout.missing_runs, "__defaults__", (2,))
    write_sealed_directory(tmp_path / "many", "model", [300] * 7)
    report = upload_artifact(owner, wire_world.plan, "model", tmp_path / "many")
    assert report == UploadReport(7, 0, 2100)


class CuttingProxy:
    """Forwards to the enclave and cuts a connection after so many bytes."""

    def __init__(self, port: int, budgets: list[int]) -> None:
        self._target = port
        self._budgets = budgets
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:
                return
            outside = socket.create_connection(("127.0.0.1", self._target))
            threading.Thread(target=self._pump, args=(outside, inside, None), daemon=True).start()
            threading.Thread(
                target=self._pump, args=(inside, outside, self._budgets), daemon=True
            ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, budgets: list[int] | None) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                passed += len(data)
                if budgets and passed > budgets[0]:
                    budgets.pop(0)
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_cut_connections_resume_by_themselves(
    enclave_server: Enclave, wire_world: WireWorld, sealed: Path
) -> None:
    proxy = CuttingProxy(enclave_server.server.port, [10 * MIB, 20 * MIB, 5 * MIB])
    with closing(proxy):
        client = EnclaveClient(
            proxy.endpoint,
            enclave_server.identity.certificate_der,
            client_key_pem=key_pem(wire_world.owner),
            client_certificate_pem=certificate_pem(wire_world.owner),
            plan=wire_world.plan.digest,
            timeouts=Timeouts(20, 120),
        )
        with client:
            report = upload_artifact(client, wire_world.plan, "model", sealed)
    assert proxy.cuts == 3
    # What was on its way when a connection broke is sent twice, nothing else.
    assert TOTAL <= report.sent_segments < TOTAL + 3 * 17
    assert_stored(enclave_server, wire_world, sealed)


def test_lying_status_is_refused(wire_world: WireWorld, sealed: Path) -> None:
    """A server that asks for what the artifact does not have is not obeyed."""

    class Liar:
        plan = wire_world.plan.digest

        def exchange_upload(
            self, artifact: str, index: bytes, segments: Iterator[bytes]
        ) -> Iterator[UploadStatus]:
            yield UploadStatus(artifact, "ab" * 32, 1, 1, 1, 1, (SegmentRun(1, 40, 2**31),))

    with pytest.raises(Refusal) as caught:
        upload_artifact(Liar(), wire_world.plan, "model", sealed)  # type: ignore[arg-type]
    assert caught.value.code == "message_malformed"
