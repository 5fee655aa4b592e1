"""Runs a `python` bundle: entry by path, one model client, one result frame.

The bundle's code is approved, not trusted: it runs in this very process and
may do what the process may do.  What confines it is the compartment, and what
judges its result is the gate.  This module keeps honest bundles simple and
gives every failure one fixed code without text.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from enclave.core.errors import DocumentRefused, Refusal, RunRefused
from enclave.core.fields import Fields
from enclave.workload.frames import send_frame
from enclave.workload.sandbox.bundle import BundleManifest, read_manifest
from enclave.workload.sandbox.model_client import ModelClient
from enclave.workload.sandbox.result_frame import MAX_COUNT, build_result_frame

PACKAGE = "evaluation_bundle"
"""The package as which a bundle is imported: it can shadow nothing outside it."""

_PROGRESS_SECONDS = 0.2
_STAGE_STEPS = 1000
_FAILED = "bundle_failed"

FAILURE_CODES = frozenset(
    {
        _FAILED,
        "bundle_entry_malformed",
        "bundle_entry_missing",
        "bundle_environment_mismatch",
        "bundle_environment_unknown",
        "bundle_kind_unknown",
        "bundle_manifest_malformed",
        "bundle_manifest_missing",
        "bundle_result_malformed",
        "run_settings_malformed",
        "suite_file_missing",
    }
)
"""Every code a failure frame may carry; a broker refuses any other."""


def run(
    *,
    control: socket.socket,
    result: socket.socket,
    settings: Mapping[str, Any],
    bundle: str = "/bundle",
    suite: str = "/suite",
    model_url: str = "http://127.0.0.1:8000",
) -> int:
    """Evaluate and send exactly one frame over `result`; always 0.

    `settings`: {"environment": the plan's bundle environment}.
    The frame is the result (docs/spec/eval-bundle.md) or {"failed": code}.
    Progress goes over `control` as {"op":"progress","done","total"}, over all stages.
    """
    _silence()
    try:
        frame = _evaluate(Path(bundle), Path(suite), model_url, settings, _Progress(control))
    except Refusal as refusal:
        frame = {"failed": refusal.code}
    try:
        send_frame(result, frame)
    except Refusal:
        # Too large, not canonical, or nobody listens: the broker sees no result.
        _send_failure(result)
    result.close()
    return 0


def _send_failure(result: socket.socket) -> None:
    try:
        send_frame(result, {"failed": "bundle_result_malformed"})
    except Refusal:
        return


def _silence() -> None:
    """Point the standard streams at nothing: they would be an unmetered way out."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _evaluate(
    bundle: Path, suite: Path, model_url: str, settings: Mapping[str, Any], progress: _Progress
) -> dict[str, Any]:
    manifest = read_manifest(bundle)
    _refuse_environment(manifest, settings)
    for name in manifest.suite_files:
        if not (suite / name).is_file():
            raise RunRefused("suite_file_missing", expected="every file of suite_files")
    progress.stages = manifest.stages
    model = ModelClient(
        model_url, max_requests=manifest.max_requests, max_tokens=manifest.max_tokens
    )
    try:
        returned = load_entry(bundle, manifest)(suite, model, progress.report)
        return build_result_frame(returned, manifest)
    except Refusal as refusal:
        # Of the bundle's own making, unless the code is one of this room's.
        raise RunRefused(refusal.code if refusal.code in FAILURE_CODES else _FAILED) from None
    except BaseException:  # noqa: BLE001 - whatever the bundle raised, its text stays inside
        raise RunRefused(_FAILED) from None
    finally:
        model.close()


def _refuse_environment(manifest: BundleManifest, settings: Mapping[str, Any]) -> None:
    try:
        fields = Fields(settings, "settings")
        planned = fields.identifier("environment")
        fields.done()
    except DocumentRefused as refusal:
        raise RunRefused("run_settings_malformed", expected=refusal.expected) from None
    if manifest.environment != planned:
        raise RunRefused("bundle_environment_mismatch", expected="the plan's environment")


def load_entry(bundle: Path, manifest: BundleManifest) -> Callable[..., Any]:
    """Import the bundle's entry by path, as part of a package of its own.

    The bundle's directory never comes onto `sys.path`: its files can not take
    the place of a library, and it reaches its own modules by `from . import`.
    """
    path = bundle / f"{manifest.module}.py"
    if not path.is_file():
        raise RunRefused("bundle_entry_missing", expected="the entry's file")
    sys.dont_write_bytecode = True
    sys.path[:] = [place for place in sys.path if place not in ("", ".")]
    package = ModuleType(PACKAGE)
    package.__path__ = [str(bundle)]
    sys.modules[PACKAGE] = package
    name = f"{PACKAGE}.{manifest.module}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        raise RunRefused("bundle_entry_missing", expected="the entry's file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    entry = getattr(module, manifest.function, None)
    if not callable(entry):
        raise RunRefused("bundle_entry_missing", expected="the entry's function")
    return entry  # type: ignore[no-any-return]


class _Progress:
    """Counts of declared stages, a few a second at most."""

    def __init__(self, control: socket.socket) -> None:
        self.stages: tuple[str, ...] = ()
        self._control = control
        self._next = 0.0

    def report(self, stage: str, done: int, total: int) -> None:
        """Tell the broker; the last count of a stage is always sent.

        Raises ValueError for an undeclared stage or a count out of range.
        """
        if stage not in self.stages or not 0 <= done <= total <= MAX_COUNT:
            raise ValueError("stages are declared in bundle.toml, done is at most total")
        now = time.monotonic()
        if done != total and now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS
        try:
            message = {"op": "progress", **self._over_all(stage, done, total)}
            send_frame(self._control, message)
        except Refusal:
            return

    def _over_all(self, stage: str, done: int, total: int) -> dict[str, int]:
        """Stages count alike: which one it is stays inside."""
        part = _STAGE_STEPS * done // total if total else _STAGE_STEPS
        return {
            "done": _STAGE_STEPS * self.stages.index(stage) + part,
            "total": _STAGE_STEPS * len(self.stages),
        }
