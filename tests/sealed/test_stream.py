"""The stream format: its geometry, and Tink both ways."""

from __future__ import annotations

import io
import os

import pytest
import tink
from hypothesis import given, settings
from hypothesis import strategies as st
from tink import secret_key_access, streaming_aead
from tink.proto import aes_gcm_hkdf_streaming_pb2, common_pb2, tink_pb2

from enclave.core.errors import SealedRefused
from enclave.core.sealed.stream import StreamCipher, StreamLayout, parse_ciphertext_size
from tests.sealed.artifacts import FIRST, NEXT, open_stream, seal_stream

MIB = 1024 * 1024
SIZES = (0, 1, 15, 16, 17, FIRST - 1, FIRST, FIRST + 1, FIRST + NEXT, FIRST + NEXT + 1, 3 * MIB)

streaming_aead.register()


def tink_primitive(key: bytes) -> streaming_aead.StreamingAead:
    """Tink's AES256_GCM_HKDF_1MB under a given key, through its public keyset format."""
    material = aes_gcm_hkdf_streaming_pb2.AesGcmHkdfStreamingKey(version=0, key_value=key)
    material.params.ciphertext_segment_size = MIB
    material.params.derived_key_size = 32
    material.params.hkdf_hash_type = common_pb2.SHA256
    keyset = tink_pb2.Keyset(primary_key_id=1)
    entry = keyset.key.add()
    entry.key_data.type_url = "type.googleapis.com/google.crypto.tink.AesGcmHkdfStreamingKey"
    entry.key_data.value = material.SerializeToString()
    entry.key_data.key_material_type = tink_pb2.KeyData.SYMMETRIC
    entry.status = tink_pb2.ENABLED
    entry.key_id = 1
    entry.output_prefix_type = tink_pb2.RAW
    handle = tink.proto_keyset_format.parse(keyset.SerializeToString(), secret_key_access.TOKEN)
    return handle.primitive(streaming_aead.StreamingAead)


def associated_data(stream: int) -> bytes:
    return b"doubleblind/sealed/v1" + stream.to_bytes(4, "big")


class Kept(io.BytesIO):
    """Keeps its bytes when Tink closes it."""

    def close(self) -> None:
        self.kept = self.getvalue()
        super().close()


def test_the_parameters_are_those_of_the_template() -> None:
    template = streaming_aead.streaming_aead_key_templates.AES256_GCM_HKDF_1MB
    form = aes_gcm_hkdf_streaming_pb2.AesGcmHkdfStreamingKeyFormat.FromString(template.value)
    assert form.key_size == 32
    assert form.params.ciphertext_segment_size == MIB
    assert form.params.derived_key_size == 32
    assert form.params.hkdf_hash_type == common_pb2.SHA256


@pytest.mark.parametrize("size", SIZES)
def test_tink_reads_what_we_seal(size: int) -> None:
    key, plaintext = os.urandom(32), os.urandom(size)
    sealed = io.BytesIO(seal_stream(key, 7, plaintext))
    with tink_primitive(key).new_decrypting_stream(sealed, associated_data(7)) as opened:
        assert opened.read() == plaintext


@pytest.mark.parametrize("size", SIZES)
def test_we_open_what_tink_writes(size: int) -> None:
    key, plaintext = os.urandom(32), os.urandom(size)
    written = Kept()
    with tink_primitive(key).new_encrypting_stream(written, associated_data(9)) as stream:
        stream.write(plaintext)
    assert len(written.kept) == StreamLayout(size).ciphertext_size
    assert open_stream(key, 9, written.kept) == plaintext


def test_tink_refuses_our_stream_under_another_number() -> None:
    key = os.urandom(32)
    sealed = io.BytesIO(seal_stream(key, 1, b"content"))
    stream = tink_primitive(key).new_decrypting_stream(sealed, associated_data(2))
    with pytest.raises(tink.TinkError):
        stream.read()


@given(st.integers(0, 8 * MIB) | st.sampled_from(SIZES))
def test_segments_cover_the_stream_once(size: int) -> None:
    layout = StreamLayout(size)
    segments = [layout.segment(number) for number in range(layout.segments)]
    sealed, opened = 40, 0
    for segment in segments:
        assert (segment.ciphertext_offset, segment.plaintext_offset) == (sealed, opened)
        assert segment.last == (segment is segments[-1])
        sealed += segment.ciphertext_size
        opened += segment.plaintext_size
        assert segment.last or sealed % MIB == 0
    assert (sealed, opened) == (layout.ciphertext_size, size)
    assert parse_ciphertext_size(layout.ciphertext_size, 0) == layout


@given(st.integers(-5, 3 * MIB))
@settings(max_examples=300)
def test_a_size_is_a_streams_or_is_refused(size: int) -> None:
    try:
        layout = parse_ciphertext_size(size, 0)
    except SealedRefused as refusal:
        assert refusal.code == "index_stream_size"
    else:
        assert layout.ciphertext_size == size


@pytest.mark.parametrize("size", [-1, 0, 40, 55, MIB + 1, MIB + 16, 2 * MIB + 16, 2**44 + 57])
def test_sizes_no_stream_can_have(size: int) -> None:
    with pytest.raises(SealedRefused) as caught:
        parse_ciphertext_size(size, 3)
    assert caught.value.code == "index_stream_size"


@pytest.mark.parametrize("header", [b"", b"\x28" * 39, b"\x28" * 41, b"\x27" + bytes(39)])
def test_malformed_header(header: bytes) -> None:
    with pytest.raises(SealedRefused) as caught:
        StreamCipher(bytes(32), header, 1)
    assert caught.value.code == "segment_invalid"


def test_no_segment_outside_the_layout() -> None:
    for number in (-1, 1):
        with pytest.raises(ValueError, match="no such segment"):
            StreamLayout(5).segment(number)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_other_key_sizes(size: int) -> None:
    with pytest.raises(ValueError, match="key"):
        StreamCipher(bytes(size), b"\x28" + bytes(39), 1)
