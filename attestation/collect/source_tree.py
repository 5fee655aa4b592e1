"""Measure the installed source tree: what a simulated attester reports as its MEASUREMENT.

It says which sources lie on the disk. It does not prove that they run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import struct
from collections.abc import Sequence
from pathlib import Path

import rfc8785

from attestation.collect.refusals import refuse_collect
from attestation.types.evidence import SIMULATED

MEASURED_PACKAGES = ("attestation", "enclave")
_SUFFIXES = (".py", ".json", ".txt")
"""Code, documents and the lists of the seccomp filters."""
_TAG = b"doubleblind/source-tree/v1"
_REFERENCE_VALUES_TYPE = "https://w3id.org/double-blind/reference-values/v1"


def measure_source_tree(roots: Sequence[Path] | None = None) -> bytes:
    """48 bytes: SHA-384 over every .py, .json and .txt file below `roots`, sorted by name.

    A file's name is that of its root's last part and the path below it, with
    `/`. Each contributes its length-prefixed name and the SHA-384 of its
    bytes. Default roots are the installed `attestation` and `enclave`
    packages. Raises CollectError if a root or package is not there.
    """
    chosen = [_package_root(name) for name in MEASURED_PACKAGES] if roots is None else roots
    files: dict[str, Path] = {}
    for root in chosen:
        if not root.is_dir():
            raise refuse_collect(
                "source_tree_missing", field=root.name, expected="a directory", got="none"
            )
        for path in root.rglob("*"):
            if path.suffix in _SUFFIXES and path.is_file():
                files[f"{root.name}/{path.relative_to(root).as_posix()}"] = path
    if not files:
        raise refuse_collect(
            "source_tree_empty", field="roots", expected="at least one source file", got="none"
        )
    digest = hashlib.sha384(_TAG + b"\x00")
    for name in sorted(files):
        encoded = name.encode()
        digest.update(struct.pack(">I", len(encoded)) + encoded)
        digest.update(hashlib.sha384(files[name].read_bytes()).digest())
    return digest.digest()


def reference_values_for_simulated(measurement: bytes | None = None) -> bytes:
    """The canonical reference-values document for the installed source tree (or `measurement`)."""
    value = measure_source_tree() if measurement is None else measurement
    return rfc8785.dumps(
        {
            "type": _REFERENCE_VALUES_TYPE,
            "name": "simulated-source-tree",
            "values": {
                SIMULATED: {
                    "measurements": [{"name": "source tree", "measurement": value.hex()}],
                }
            },
        }
    )


def _package_root(name: str) -> Path:
    # find_spec reads the file system and does not import a top-level package.
    spec = importlib.util.find_spec(name)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not locations:
        raise refuse_collect(
            "source_tree_missing", field=name, expected="an installed package", got="none"
        )
    return Path(locations[0])
