"""The fast segment layout is protobuf, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enclave.core.errors import Refusal
from enclave.wire.codec_upload import parse_open, parse_segment, print_open
from enclave.wire.generated.doubleblind.v1 import upload_pb2
from enclave.wire.requests import UploadOpen
from enclave.wire.segment_frame import pack_segment, split_segment

U32 = st.integers(0, 2**32 - 1)


@given(U32, U32, st.binary(max_size=70_000))
def test_equal_to_protobuf(stream: int, segment: int, ciphertext: bytes) -> None:
    packed = pack_segment(stream, segment, ciphertext)
    message = upload_pb2.UploadRequest(stream=stream, segment=segment, ciphertext=ciphertext)
    assert packed == message.SerializeToString()
    parts = split_segment(packed)
    assert parts is not None
    assert (parts[0], parts[1], bytes(parts[2])) == (stream, segment, ciphertext)


def test_whole_segment_takes_the_fast_path() -> None:
    parts = split_segment(pack_segment(3, 9, b"c" * 2**20))
    assert parts is not None
    assert len(parts[2]) == 2**20


@given(st.binary(max_size=64))
def test_other_bytes_never_pass_as_a_segment(data: bytes) -> None:
    """Whatever the fast path takes, protobuf reads the same; the rest is refused typed."""
    try:
        stream, segment, ciphertext = parse_segment(data)
    except Refusal as refusal:
        assert refusal.code == "message_malformed"
        return
    message = upload_pb2.UploadRequest.FromString(data)
    assert (message.stream, message.segment, message.ciphertext) == (
        stream, segment, bytes(ciphertext),
    )  # fmt: skip


@given(U32, st.binary(max_size=40), st.data())
def test_cut_or_longer_frames(segment: int, ciphertext: bytes, data: st.DataObject) -> None:
    packed = pack_segment(1, segment, ciphertext)
    cut = data.draw(st.integers(0, len(packed) - 1))
    assert split_segment(packed[:cut]) is None
    assert split_segment(packed + b"\x00") is None


@pytest.mark.parametrize(
    "message",
    [
        upload_pb2.UploadRequest(),
        upload_pb2.UploadRequest(stream=1, segment=1),
        upload_pb2.UploadRequest(stream=1, ciphertext=b"x"),
        upload_pb2.UploadRequest(
            open=upload_pb2.UploadOpen(plan=b"p" * 32), stream=1, segment=1, ciphertext=b"x"
        ),
    ],
)
def test_incomplete_segments(message: upload_pb2.UploadRequest) -> None:
    with pytest.raises(Refusal) as caught:
        parse_segment(message.SerializeToString())
    assert caught.value.code == "message_malformed"


def test_open_message() -> None:
    request = UploadOpen("ab" * 32, "model", b"index")
    assert parse_open(print_open(request)) == request
    for other in (b"", pack_segment(0, 0, b"x"), print_open(request) + pack_segment(0, 0, b"x")):
        with pytest.raises(Refusal) as caught:
            parse_open(other)
        assert caught.value.code == "message_malformed"
