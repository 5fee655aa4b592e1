"""`bundle.toml`: what an eval bundle is and needs (docs/spec/eval-bundle.md).

The table is closed.  Kind `python` exists; every other kind is refused by
its own code, so that an older runtime can never half-run a newer bundle.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enclave.core.errors import DocumentRefused, RunRefused
from enclave.core.fields import Fields

MANIFEST = "bundle.toml"
MAX_MANIFEST_BYTES = 64 * 1024
KINDS = ("python",)
NEEDS = ("chat", "completions", "logprobs")
ENVIRONMENTS: Mapping[str, str] = {"python-stdlib": "the standard library and the model client"}
_ENTRY = re.compile(r"([a-z_][a-z0-9_]{0,63})\.py:([a-z_][a-z0-9_]{0,63})\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")


@dataclass(frozen=True)
class BundleManifest:
    """A well-formed manifest. `module` and `function` are the entry's two halves."""

    name: str
    kind: str
    module: str
    function: str
    environment: str
    needs: tuple[str, ...]
    suite_files: tuple[str, ...]
    stages: tuple[str, ...]
    metrics: tuple[str, ...]
    controls: tuple[str, ...]
    max_requests: int
    max_tokens: int


def parse_manifest(data: bytes) -> BundleManifest:
    """Read `bundle.toml`.

    Raises RunRefused: `bundle_manifest_malformed`, `bundle_kind_unknown`,
    `bundle_entry_malformed`, `bundle_environment_unknown`.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise RunRefused("bundle_manifest_malformed", expected=f"at most {MAX_MANIFEST_BYTES}")
    try:
        table = tomllib.loads(data.decode("utf-8", "strict"))
    except (ValueError, RecursionError):
        raise RunRefused("bundle_manifest_malformed", expected="TOML") from None
    # The kind decides what the other keys mean: it is judged first.
    if table.get("kind") not in KINDS:
        raise RunRefused("bundle_kind_unknown", expected=" or ".join(KINDS))
    try:
        return _read(table)
    except DocumentRefused as refusal:
        raise RunRefused("bundle_manifest_malformed", expected=refusal.expected) from None


def _read(table: Mapping[str, Any]) -> BundleManifest:
    fields = Fields(table, "bundle")
    entry = _ENTRY.match(fields.text("entry"))
    if entry is None:
        raise RunRefused("bundle_entry_malformed", expected="file.py:function")
    outputs = fields.object("outputs")
    limits = fields.object("limits")
    manifest = BundleManifest(
        name=fields.identifier("name"),
        kind=fields.constant("kind", *KINDS),
        module=entry.group(1),
        function=entry.group(2),
        environment=fields.identifier("environment"),
        needs=fields.identifiers("needs", 0, len(NEEDS)),
        suite_files=tuple(fields.array("suite_files", 1, 1000)),
        stages=fields.identifiers("stages", 1, 32),
        metrics=outputs.identifiers("metrics", 1, 200),
        controls=outputs.identifiers("controls", 0, 50),
        max_requests=limits.integer("requests", 1, 10**9),
        max_tokens=limits.integer("max_tokens", 0, 2**20),
    )
    for closed in (outputs, limits, fields):
        closed.done()
    if manifest.environment not in ENVIRONMENTS:
        raise RunRefused("bundle_environment_unknown", expected=" or ".join(ENVIRONMENTS))
    if not set(manifest.needs) <= set(NEEDS):
        raise RunRefused("bundle_manifest_malformed", expected=f"needs: of {', '.join(NEEDS)}")
    for name in manifest.suite_files:
        if not isinstance(name, str) or _FILE.match(name) is None:
            raise RunRefused("bundle_manifest_malformed", expected="suite_files: file names")
    return manifest


def read_manifest(bundle: Path) -> BundleManifest:
    """Read the manifest of an opened bundle directory."""
    try:
        data = (bundle / MANIFEST).read_bytes()
    except OSError:
        raise RunRefused("bundle_manifest_missing", expected=MANIFEST) from None
    return parse_manifest(data)
