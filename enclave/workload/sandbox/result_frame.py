"""The one frame that leaves a sandbox: declared metrics, controls and two counts.

The gate judges values; here only the form is judged, so that an honest
mistake in a bundle has a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enclave.core.errors import DocumentRefused, RunRefused
from enclave.core.fields import Fields
from enclave.workload.sandbox.bundle import BundleManifest

MAX_COUNT = 2**40


def build_result_frame(result: Any, manifest: BundleManifest) -> dict[str, Any]:
    """The frame for what a bundle's entry returned.

    Raises RunRefused `bundle_result_malformed`: wrong shape, a metric or
    control that `bundle.toml` does not declare, or one missing.
    """
    try:
        return _read(result, manifest)
    except DocumentRefused as refusal:
        raise RunRefused("bundle_result_malformed", expected=refusal.expected) from None


def _read(result: Any, manifest: BundleManifest) -> dict[str, Any]:
    fields = Fields(result, "result")
    metrics = Fields(fields.mapping("metrics", 0, 200), "metrics")
    controls = Fields(fields.mapping("controls", 0, 50), "controls")
    frame = {
        "metrics": {name: _read_metric(metrics.object(name)) for name in manifest.metrics},
        "controls": {name: controls.decimal(name) for name in manifest.controls},
        "completed": fields.integer("completed", 0, MAX_COUNT),
        "failed": fields.integer("failed", 0, MAX_COUNT),
    }
    for closed in (metrics, controls, fields):
        closed.done()
    return frame


def _read_metric(metric: Fields) -> Mapping[str, Any]:
    value = {"value": metric.decimal("value"), "n": metric.integer("n", 0, MAX_COUNT)}
    metric.done()
    return value
