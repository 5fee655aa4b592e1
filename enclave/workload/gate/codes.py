"""Why eval code gave no result: the closed list of codes the gate passes on."""

from __future__ import annotations

from typing import Final

RUN_CODES: Final = frozenset(
    {
        "bundle_entry_malformed",
        "bundle_entry_missing",
        "bundle_environment_mismatch",
        "bundle_environment_unknown",
        "bundle_failed",
        "bundle_kind_unknown",
        "bundle_manifest_malformed",
        "bundle_manifest_missing",
        "bundle_result_malformed",
        "model_request_budget_spent",
        "model_request_refused",
        "model_token_budget_spent",
        "model_unreachable",
        "run_settings_malformed",
        "suite_file_missing",
    }
)
"""Together with RELEASE_CODES at most 2**REFUSAL_BITS, as the budget assumes."""

RESULT_MISSING: Final = "result_missing"
"""The sandbox ended and sent nothing."""
