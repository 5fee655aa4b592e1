"""Rules for the whole suite."""

from __future__ import annotations

import os

import pytest

IN_CI = os.environ.get("DOUBLEBLIND_CI") == "1"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """In CI a test that is skipped for want of a tool or of root fails, and says for what."""
    outcome = yield
    report = outcome.get_result()
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {reason}"
