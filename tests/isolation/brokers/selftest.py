"""Runs the self-test and prints it."""

import json
import time

from enclave.core.errors import Refusal
from enclave.workload.launcher.client import LauncherClient
from enclave.workload.launcher.selftest import demand_tier, run_selftest

launcher = LauncherClient.from_environment()
begun = time.monotonic()
result = run_selftest(launcher)
seconds = time.monotonic() - begun
again = run_selftest(launcher)
refused = ""
try:
    demand_tier(result, "T2")
except Refusal as refusal:
    refused = refusal.code
print(
    json.dumps(
        {
            "tier": result.tier,
            "missing": result.missing,
            "profile_digest": result.profile_digest,
            "again": again.profile_digest,
            "tried": result.tried,
            "refused": result.refused,
            "probes": [probe.as_json() for probe in result.probes],
            "seconds": seconds,
            "demand": refused,
        }
    )
)
