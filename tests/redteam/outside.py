"""The same probes with nothing around them: what succeeds here can fail only by confinement.

    python outside.py DIRECTORY VALUE

prints one JSON object of outcomes by id.  DIRECTORY is scratch and stands in
for the runtime; VALUE is the secret of environment and arguments.
"""

import json
import os
import sys

from enclave.workload.isolation.canaries import Canaries
from enclave.workload.isolation.probes.registry import probes_for
from enclave.workload.isolation.probes.room import fork_probe
from enclave.workload.launcher.selftest import PROBE_LIMITS

extra = [os.dup(0) for _ in range(4)]  # descriptors that somebody forgot
with Canaries(PROBE_LIMITS, runtime=sys.argv[1], scratch=sys.argv[1]) as canaries:
    outcomes = {probe.id: fork_probe(probe, canaries.targets) for probe in probes_for("sandbox")}
    touched = canaries.touched()
print(json.dumps({"outcomes": outcomes, "touched": touched}))
