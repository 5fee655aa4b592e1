"""Manifest, index and commitment: one spelling, and every unsafe one refused by its code."""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enclave.core.canonical import print_canonical
from enclave.core.errors import Refusal, SealedRefused
from enclave.core.sealed import (
    Manifest,
    ManifestFile,
    SealedIndex,
    compute_commitment,
    parse_index,
    parse_manifest,
    verify_commitment,
)
from enclave.core.sealed.paths import parse_path, refuse_colliding_paths
from enclave.core.vocabulary import MANIFEST_TYPE, SEALED_ARTIFACT_TYPE

DIGEST = "ab" * 32


def manifest_bytes(*paths: str, artifact: str = "suite", **changed: Any) -> bytes:
    files = [{"path": path, "size": 5, "blake3": DIGEST} for path in paths]
    return print_canonical({"type": MANIFEST_TYPE, "artifact": artifact, "files": files, **changed})


def entry(**changed: Any) -> dict[str, Any]:
    return {"path": "a", "size": 5, "blake3": DIGEST, **changed}


def without(name: str) -> dict[str, Any]:
    fields = entry()
    del fields[name]
    return fields


UNSAFE_PATHS = {
    "empty": "",
    "parent": "..",
    "parent_inside": "a/../b",
    "parent_first": "../a",
    "current": "./a",
    "absolute": "/etc/passwd",
    "double_slash": "a//b",
    "trailing_slash": "a/",
    "backslash": "a\\b",
    "backslash_parent": "..\\a",
    "nul": "a\x00b",
    "newline": "a\nb",
    "escape": "a\x1b[2Jb",
    "delete": "a\x7f",
    "c1_control": "a\x85b",
    "bidi_override": "a\u202egpj.exe",
    "zero_width": "a\u200bb",
    "no_break_space": "a\u00a0b",
    "line_separator": "a\u2028b",
    "private_use": "a\ue000",
    "not_nfc": "e\u0301",
    "too_long": "a" * 256,
    "too_long_in_bytes": "é" * 128,
    "too_deep": "/".join("a" * 17),
}


@pytest.mark.parametrize("name", sorted(UNSAFE_PATHS))
def test_unsafe_path(name: str) -> None:
    with pytest.raises(SealedRefused) as caught:
        parse_manifest(manifest_bytes(UNSAFE_PATHS[name]), 100, 10)
    assert caught.value.code == "manifest_path_unsafe"
    if UNSAFE_PATHS[name].strip("./"):
        assert UNSAFE_PATHS[name] not in str(caught.value), "paths are secret"


def test_a_path_that_is_not_utf8() -> None:
    with pytest.raises(SealedRefused) as caught:
        parse_path("a\udcff", "file 1")
    assert caught.value.code == "manifest_path_unsafe"


COLLISIONS = {
    "same": ("a", "a"),
    "case": ("A", "a"),
    "case_in_folder": ("A/x", "a/x"),
    "sharp_s": ("strasse", "straße"),
    "compatibility": ("ﬁle", "file"),
    "full_width": ("a", "ａ"),
    "kelvin": ("k", "\u212a"),
    "file_and_folder": ("a", "a/b"),
    "file_and_folder_by_case": ("A", "a/b"),
}


@pytest.mark.parametrize("name", sorted(COLLISIONS))
def test_colliding_paths(name: str) -> None:
    paths = COLLISIONS[name]
    with pytest.raises(SealedRefused) as caught:
        refuse_colliding_paths(paths)
    assert caught.value.code == "manifest_duplicate_path"
    for order in (paths, paths[::-1]):
        with pytest.raises(SealedRefused) as caught:
            parse_manifest(manifest_bytes(*order), 100, 10)
        assert caught.value.code in {"manifest_duplicate_path", "manifest_path_unsafe"}


MANIFESTS: dict[str, tuple[bytes, str]] = {
    "no_files": (manifest_bytes(), "artifact_empty"),
    "too_many": (manifest_bytes(*map(chr, range(97, 108))), "artifact_too_many_files"),
    "too_large": (manifest_bytes(files=[entry(size=101)]), "artifact_too_large"),
    "too_large_together": (
        manifest_bytes(files=[entry(size=60), entry(path="b", size=41)]),
        "artifact_too_large",
    ),
    "order": (manifest_bytes("b", "a"), "manifest_order"),
    "unknown_key": (manifest_bytes("a", extra=1), "document_field_unknown"),
    "unknown_file_key": (manifest_bytes(files=[entry(mode=7)]), "document_field_unknown"),
    "no_path": (manifest_bytes(files=[without("path")]), "document_field_missing"),
    "no_digest": (manifest_bytes(files=[without("blake3")]), "document_field_missing"),
    "path_number": (manifest_bytes(files=[entry(path=5)]), "document_field_type"),
    "size_text": (manifest_bytes(files=[entry(size="5")]), "document_field_type"),
    "size_true": (manifest_bytes(files=[entry(size=True)]), "document_field_type"),
    "size_negative": (manifest_bytes(files=[entry(size=-1)]), "document_field_value"),
    "size_huge": (manifest_bytes(files=[entry(size=2**50)]), "document_field_value"),
    "digest_short": (manifest_bytes(files=[entry(blake3="ab")]), "document_field_value"),
    "digest_upper": (manifest_bytes(files=[entry(blake3="AB" * 32)]), "document_field_value"),
    "file_is_text": (manifest_bytes(files=["a"]), "document_field_type"),
    "other_type": (manifest_bytes("a", type=SEALED_ARTIFACT_TYPE), "document_field_value"),
    "other_artifact": (manifest_bytes("a", artifact="weights"), "document_field_value"),
    "trailing_byte": (manifest_bytes("a") + b"\n", "document_not_canonical"),
    "not_canonical": (
        json.dumps(json.loads(manifest_bytes("a"))).encode(),
        "document_not_canonical",
    ),
    "duplicate_key": (
        manifest_bytes("a").replace(b'"type"', b'"artifact":"suite","type"'),
        "document_duplicate_key",
    ),
    "float": (manifest_bytes("a").replace(b":5}", b":5.0}"), "document_float"),
    "not_json": (b"\x80", "document_not_json"),
    "array": (b"[]", "document_not_object"),
}


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_malformed_manifest(name: str) -> None:
    data, code = MANIFESTS[name]
    with pytest.raises(Refusal) as caught:
        parse_manifest(data, 100, 10)
    assert caught.value.code == code


MODEL_FILES = {
    "model.safetensors": "",
    "config.json": "",
    "tokenizer.model": "",
    "merges.txt": "",
    "chat_template.jinja": "",
    "README.md": "",
    "LICENSE": "",
    "sub/model-00001-of-00002.safetensors": "",
    "pytorch_model.bin": "model_pickle",
    "model.PT": "model_pickle",
    "consolidated.00.pth": "model_pickle",
    "last.ckpt": "model_pickle",
    "state.pkl": "model_pickle",
    "state.pickle.json": "model_pickle",
    "x.joblib": "model_pickle",
    "x.npy": "model_pickle",
    "x.npz": "model_pickle",
    "modeling.py": "model_file_kind",
    "model.gguf": "model_file_kind",
    "model.h5": "model_file_kind",
    "model.SAFETENSORS": "model_file_kind",
    ".json": "model_file_kind",
    ".gitattributes": "model_file_kind",
    "license": "model_file_kind",
    "run": "model_file_kind",
}


@pytest.mark.parametrize("path", sorted(MODEL_FILES))
def test_model_files(path: str) -> None:
    data, code = manifest_bytes(path, artifact="model"), MODEL_FILES[path]
    if not code:
        assert parse_manifest(data, 100, 10).files[0].path == path
        return
    with pytest.raises(Refusal) as caught:
        parse_manifest(data, 100, 10)
    assert (caught.value.stage, caught.value.code) == ("model", code)
    # Only the model is loaded by a library: code and questions are what they are.
    parse_manifest(manifest_bytes(path), 100, 10)


NAMES = st.text(st.characters(categories=["L", "N"], max_codepoint=0x24F), min_size=1, max_size=8)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=3).map("/".join), min_size=1, max_size=6))
def test_print_and_parse(paths: list[str]) -> None:
    try:
        refuse_colliding_paths(paths)
        [parse_path(path, "file") for path in paths]
    except SealedRefused:
        return
    files = tuple(ManifestFile(path, 3, DIGEST) for path in sorted(paths))
    manifest = Manifest("bundle", files)
    parsed = parse_manifest(manifest.to_bytes(), 1000, 10)
    assert parsed == manifest
    assert parsed.to_bytes() == manifest.to_bytes()
    assert parsed.digest == hashlib.sha256(manifest.to_bytes()).hexdigest()


def index_bytes(**changed: Any) -> bytes:
    fields = {
        "type": SEALED_ARTIFACT_TYPE,
        "artifact": "model",
        "commitment": DIGEST,
        "streams": [200, 56],
    }
    return print_canonical({**fields, **changed})


INDEXES: dict[str, tuple[bytes, str]] = {
    "no_streams": (index_bytes(streams=[]), "index_stream_count"),
    "manifest_only": (index_bytes(streams=[200]), "index_stream_count"),
    "too_many": (index_bytes(streams=[200] * 10_002), "index_stream_count"),
    "size_small": (index_bytes(streams=[200, 55]), "index_stream_size"),
    "size_negative": (index_bytes(streams=[200, -1]), "index_stream_size"),
    "size_text": (index_bytes(streams=[200, "56"]), "index_stream_size"),
    "size_true": (index_bytes(streams=[200, True]), "index_stream_size"),
    "size_null": (index_bytes(streams=[None, 56]), "index_stream_size"),
    "size_impossible": (index_bytes(streams=[200, 2**20 + 5]), "index_stream_size"),
    "manifest_huge": (index_bytes(streams=[2**25, 56]), "index_stream_size"),
    "unknown_key": (index_bytes(salt=DIGEST), "document_field_unknown"),
    "commitment_short": (index_bytes(commitment="ab"), "document_field_value"),
    "other_type": (index_bytes(type=MANIFEST_TYPE), "document_field_value"),
    "other_artifact": (index_bytes(artifact="key"), "document_field_value"),
    "trailing": (index_bytes() + b" ", "document_not_canonical"),
    "too_large": (index_bytes() + b" " * 200_000, "document_too_large"),
}


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_malformed_index(name: str) -> None:
    data, code = INDEXES[name]
    with pytest.raises(Refusal) as caught:
        parse_index(data)
    assert caught.value.code == code


def test_index_round_trip() -> None:
    index = SealedIndex("model", DIGEST, (200, 56, 2**20))
    assert parse_index(index.to_bytes()) == index


def test_commitment_depends_on_everything() -> None:
    salt = os.urandom(32)
    base = compute_commitment("model", salt, DIGEST)
    assert base != compute_commitment("suite", salt, DIGEST)
    assert base != compute_commitment("model", os.urandom(32), DIGEST)
    assert base != compute_commitment("model", salt, "cd" * 32)
    verify_commitment("model", salt, DIGEST, base)
    with pytest.raises(SealedRefused) as caught:
        verify_commitment("model", salt, DIGEST, DIGEST)
    assert caught.value.code == "commitment_mismatch"
    encoded = b"doubleblind/commitment/v1\x00" + b"".join(
        len(field).to_bytes(4, "big") + field for field in (b"model", salt, bytes.fromhex(DIGEST))
    )
    assert base == hashlib.sha256(encoded).hexdigest()


@pytest.mark.parametrize(("salt", "digest"), [(bytes(31), DIGEST), (bytes(32), "ab")])
def test_malformed_commitment_inputs(salt: bytes, digest: str) -> None:
    with pytest.raises(ValueError, match="malformed"):
        compute_commitment("model", salt, digest)
