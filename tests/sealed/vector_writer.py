"""Write tests/vectors/sealed/sealed.json anew: `python -m tests.sealed.vector_writer`.

Everything in it is fixed, so a second run gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from enclave.core.canonical import digest_bytes, print_canonical
from enclave.core.sealed import compute_commitment
from enclave.core.sealed.stream import make_header
from enclave.core.vocabulary import MANIFEST_TYPE, SEALED_ARTIFACT_TYPE
from tests.sealed.artifacts import FIRST, NEXT, seal_stream
from tests.sealed.test_documents import COLLISIONS, INDEXES, MANIFESTS, MODEL_FILES, UNSAFE_PATHS

PATH = Path(__file__).parents[1] / "vectors" / "sealed" / "sealed.json"
SIZES = (0, 1, 100, FIRST - 1, FIRST, FIRST + 1, FIRST + NEXT, FIRST + NEXT + 1)
FLIPS = (0, 1, 32, 33, 39, 40, 139, 140, 155)
"""Bytes of the stream of 100: header length, salt, prefix, ciphertext, tag."""
_SHORT = 200
_DIGEST = "ab" * 32
Case = dict[str, Any]


def take(label: str, size: int) -> bytes:
    return hashlib.shake_128(label.encode()).digest(size)


def plaintext_of(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def stream_cases() -> list[Case]:
    cases = []
    for stream, size in enumerate(SIZES):
        key, salt, prefix = take(f"key {size}", 32), take(f"salt {size}", 32), take(f"n {size}", 7)
        ciphertext = seal_stream(key, stream, plaintext_of(size), make_header(salt, prefix))
        case = {
            "name": f"{size} bytes",
            "key": key.hex(),
            "stream": stream,
            "salt": salt.hex(),
            "prefix": prefix.hex(),
            "size": size,
            "ciphertext_sha256": digest_bytes(ciphertext),
        }
        if len(ciphertext) <= _SHORT:
            case["ciphertext"] = ciphertext.hex()
        cases.append(case)
        if size != 100:
            continue
        for flip in FLIPS:
            bad = {**case, "name": f"byte {flip} flipped", "flip": flip, "error": "segment_invalid"}
            cases.append(bad)
        other = {**case, "name": "another number", "stream": stream + 1, "error": "segment_invalid"}
        cases.append(other)
    return cases


def commitment_cases() -> list[Case]:
    cases = []
    for artifact in ("model", "suite", "bundle"):
        salt, digest = take(f"commitment {artifact}", 32), take(f"manifest {artifact}", 32).hex()
        commitment = compute_commitment(artifact, salt, digest)
        case = {"artifact": artifact, "salt": salt.hex(), "manifest_sha256": digest}
        cases.append({"name": artifact, **case, "commitment": commitment})
        cases.append(
            {
                "name": f"{artifact}, wrong",
                **case,
                "commitment": _DIGEST,
                "error": "commitment_mismatch",
            }
        )
    return cases


def manifest(*paths: str, artifact: str = "suite") -> str:
    files = [{"path": path, "size": 5, "blake3": _DIGEST} for path in paths]
    value = {"type": MANIFEST_TYPE, "artifact": artifact, "files": files}
    return print_canonical(value).hex()


def manifest_cases() -> list[Case]:
    bounds = {"max_bytes": 100, "max_files": 10}
    cases: list[Case] = [
        {"name": "two files", "manifest": manifest("a/b.txt", "c d.txt"), **bounds},
        {"name": "bundle", "manifest": manifest("é.py", artifact="bundle"), **bounds},
    ]
    for name, (data, code) in MANIFESTS.items():
        cases.append({"name": name, "manifest": data.hex(), **bounds, "error": code})
    for name, path in UNSAFE_PATHS.items():
        case = {"name": f"path {name}", "manifest": manifest(path), **bounds}
        cases.append({**case, "error": "manifest_path_unsafe"})
    for name, (one, two) in COLLISIONS.items():
        case = {"name": f"collision {name}", "manifest": manifest(one, two), **bounds}
        code = "manifest_path_unsafe" if name == "kelvin" else "manifest_duplicate_path"
        cases.append({**case, "error": code})
    for path, code in MODEL_FILES.items():
        case = {"name": f"model {path}", "manifest": manifest(path, artifact="model"), **bounds}
        cases.append({**case, "error": code} if code else case)
    return cases


def index_cases() -> list[Case]:
    good = print_canonical(
        {
            "type": SEALED_ARTIFACT_TYPE,
            "artifact": "model",
            "commitment": _DIGEST,
            "streams": [200, 56, 2**20, 2**20 + 17],
        }
    )
    cases: list[Case] = [{"name": "three files", "index": good.hex()}]
    for name, (data, code) in INDEXES.items():
        if len(data) < 4096:  # the large ones are in tests/sealed/test_documents.py
            cases.append({"name": name, "index": data.hex(), "error": code})
    return cases


def write() -> bytes:
    value = {
        "page": "docs/spec/sealed-artifact.md",
        "streams": stream_cases(),
        "commitments": commitment_cases(),
        "manifests": manifest_cases(),
        "indexes": index_cases(),
    }
    return (json.dumps(value, indent=1) + "\n").encode()


if __name__ == "__main__":
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_bytes(write())
