"""KIND: each killing probe in a compartment of its own, under the production rule."""

import json
import sys

from enclave.workload.isolation.canaries import Canaries
from enclave.workload.isolation.probes.registry import probes_for
from enclave.workload.launcher.client import CompartmentSpec, LauncherClient
from enclave.workload.launcher.selftest import PROBE_LIMITS, read_outcomes

launcher = LauncherClient.from_environment()
tripped, codes, told = {}, {}, {}
with Canaries(PROBE_LIMITS) as canaries:
    for probe in probes_for(sys.argv[1], killing=True):
        settings = {"probes": [probe.id], "forked": False, "targets": canaries.targets.as_json()}
        spec = CompartmentSpec("probe_strict", "t", PROBE_LIMITS, settings, probe=sys.argv[1])
        compartment = launcher.start(spec)
        compartment.wait_sealed(20)
        told.update(read_outcomes(compartment))
        end = compartment.wait(20)
        tripped[probe.id], codes[probe.id] = list(end.tripwires), end.code
print(json.dumps({"tripped": tripped, "codes": codes, "told": told}))
